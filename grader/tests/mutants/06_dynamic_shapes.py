"""Wrong and right ways to solve chapter 6."""

# ruff: noqa: E501  (one mistake a line reads best)

from __future__ import annotations

from grader.tests.mutants.framework import Mutant, Rules

RULES = Rules(message_parts=("应得", "实得", "可能的原因"), form_cells=frozenset({"todo1_events", "todo2_shape"}))

SIMULATE = "def simulate_dynamo_cache(sizes, mode, limit=8):\n"
CHOOSE = "def choose_buckets(lengths, k):\n"
PICK = "def bucket_for(length, buckets):\n"
CELLS = {SIMULATE: "todo1", CHOOSE: "todo2", PICK: "todo3"}
HIT = "n in static_sizes or (has_dynamic and n != 1)"
STATIC = 'mode == "static" or (mode == "auto" and entries == 0)'
STORE_STATIC = 'static_sizes.add(n)\n            events.append("new_static")'
BEST = "min((b for b in buckets if b >= length), default=None)"


def patched(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    """The reference with a few words changed."""
    return Mutant(name, caught_by, what, patch=patch)


def written(name: str, caught_by: str, what: str, head: str, body: str) -> Mutant:
    """A solution cell written anew."""
    return Mutant(name, caught_by, what, source=head + body, cell=CELLS[head])


def ruled(name: str, caught_by: str, what: str, rule: str) -> Mutant:
    """choose_buckets by a rule of thumb: ``rule`` sets ``b`` from ``u`` (distinct, sorted), ``lengths`` and ``k``."""
    body = "    if k < 1:\n        raise ValueError\n    u = sorted(set(lengths))\n    if not u:\n        return []\n"
    lines = "".join(f"    {line}\n" for line in rule.strip("\n").splitlines())
    return written(name, caught_by, what, CHOOSE, body + lines + "    return b\n")


def picked(name: str, caught_by: str, what: str, expression: str) -> Mutant:
    """bucket_for with another expression."""
    return patched(name, caught_by, what, (BEST, expression))


ONLY_MISSES = """\
    if mode not in ("auto", "static", "dynamic"):
        raise ValueError(mode)
    seen, dynamic, events = set(), False, []
    for n in sizes:
        if n in seen or (dynamic and n != 1):
            continue
        if len(seen) + dynamic >= limit:
            events.append("eager_limit")
        elif n == 1 or mode == "static" or (mode == "auto" and not seen):
            seen.add(n)
            events.append("new_one" if n == 1 else "new_static")
        else:
            dynamic = True
            events.append("new_dynamic")
    return events
"""

MUTANTS = (
    # TODO 1
    written("t1_no_event_for_hits", "todo1_events", "lists only the compilations", SIMULATE, ONLY_MISSES),
    patched(
        "t1_cache_survives", "todo1_events", "a default argument keeps the cache between calls",
        ("limit=8):", "limit=8, seen=set()):"), ("static_sizes, has_dynamic, events = set()", "static_sizes, has_dynamic, events = seen"),
    ),
    patched("t1_only_the_last_entry", "todo1_static", "forgets older entries", (STORE_STATIC, "static_sizes.clear()\n            " + STORE_STATIC)),
    patched("t1_static_turns_dynamic", "todo1_static", "static behaves as auto", (STATIC, 'mode != "dynamic" and entries == 0')),
    patched("t1_dynamic_starts_static", "todo1_dynamic", "first graph always static", (STATIC, 'mode == "static" or entries == 0')),
    patched("t1_dynamic_accepts_nothing_new", "todo1_dynamic", "a dynamic entry is asked for nothing", (HIT, "n in static_sizes")),
    patched("t1_auto_stays_static", "todo1_auto", "never turns dynamic", (STATIC, 'mode != "dynamic"')),
    patched("t1_auto_dynamic_at_once", "todo1_auto", "first graph dynamic", (STATIC, 'mode == "static"')),
    patched("t1_auto_turns_too_late", "todo1_auto", "two static graphs", (STATIC, 'mode == "static" or (mode == "auto" and entries < 2)')),
    patched("t1_dynamic_takes_one", "todo1_one", "a dynamic entry accepts 1", (HIT, "n in static_sizes or has_dynamic")),
    patched("t1_one_called_static", "todo1_one", "wrong event name", ('events.append("new_one")', 'events.append("new_static")')),
    patched("t1_one_is_no_entry", "todo1_one", "1 does not count as seen", ("len(static_sizes) + has_dynamic", "len(static_sizes - {1}) + has_dynamic")),
    patched("t1_one_never_stored", "todo1_one", "compiles 1 again and again", ("            static_sizes.add(1)\n", "")),
    patched("t1_one_makes_dynamic", "todo1_one", "1 after 5 leaves a dynamic entry", ("static_sizes.add(1)", 'has_dynamic = has_dynamic or (mode == "auto" and entries > 0)\n            static_sizes.add(1)')),
    patched("t1_one_plain_in_static", "todo1_one", "new_static for 1 in static mode", ("elif n == 1:", 'elif n == 1 and mode != "static":')),
    patched("t1_one_served_by_no_rule", "todo1_one", "1 compiled as dynamic", ("elif n == 1:", "elif n == 1 and False:")),
    patched("t1_limit_before_hit", "todo1_limit", "old entries stop working at the limit", (HIT, f"entries < limit and ({HIT})")),
    patched("t1_limit_one_more", "todo1_limit", "limit + 1 entries", ("entries >= limit", "entries > limit")),
    patched("t1_limit_one_less", "todo1_limit", "limit - 1 entries", ("entries >= limit", "entries >= limit - 1")),
    patched("t1_no_limit", "todo1_limit", "never runs eager", ("entries >= limit", "entries >= limit and False")),
    patched("t1_evicts_an_entry", "todo1_limit", "throws out an old entry", ('events.append("eager_limit")', 'static_sizes.discard(min(static_sizes, default=0))\n            static_sizes.add(n)\n            events.append("new_static")')),
    patched("t1_eager_for_ever", "todo1_limit", "after the limit everything is eager", (HIT, f'"eager_limit" not in events and ({HIT})')),
    patched("t1_counts_calls", "todo1_limit", "calls use up the limit", ("len(static_sizes) + has_dynamic", "len(events)")),
    patched("t1_default_limit", "todo1_limit", "64", ("limit=8):", "limit=64):")),
    patched("t1_dynamic_replaces_static", "todo1_limit", "the dynamic entry frees the static one's place", ("            has_dynamic = True\n", "            has_dynamic = True\n            static_sizes.clear()\n")),
    patched("t1_one_beyond_the_limit", "todo1_limit", "1 is exempt from the limit", ("entries >= limit", "entries >= limit and n != 1")),
    patched("t1_unknown_mode", "todo1_mode", "any other mode is dynamic", ('if mode not in ("auto", "static", "dynamic"):', "if False:")),
    # TODO 2
    patched("t2_no_buckets_allowed", "todo2_edge", "k = 0 is accepted", ("if k < 1:", "if k < 0:")),
    patched("t2_fails_on_nothing", "todo2_edge", "IndexError for an empty list", ("    if not u:\n        return []\n", "")),
    patched("t2_each_length_once", "todo2_counts", "ignores how often a length occurs", ("Counter(lengths)", "Counter(set(lengths))")),
    patched("t2_counts_not_summed", "todo2_optimal", "only the last length pays for a larger bucket", ("seen += times", "seen = times")),
    patched("t2_one_bucket_less", "todo2_small", "k - 1 buckets", ("range(1, min(k, m))", "range(1, min(k, m) - 1)")),
    patched("t2_one_bucket_more", "todo2_shape", "k + 1 buckets", ("range(1, min(k, m))", "range(1, min(k + 1, m))")),
    patched("t2_returns_the_padding", "todo2_shape", "the number, not the buckets", ("return answer[1]", "return answer[0]")),
    patched("t2_descending", "todo2_shape", "largest first", ("return answer[1]", "return answer[1][::-1]")),
    patched("t2_sorts_the_input", "todo2_shape", "lengths.sort()", ("    times = Counter(lengths)\n", "    lengths.sort()\n    times = Counter(lengths)\n")),
    patched("t2_first_layer_only", "todo2_small", "always one bucket", ("if layer[-1][0] < answer[0]:", "if layer[-1][0] > answer[0]:")),
    patched("t2_bucket_before_the_cut", "todo2_optimal", "w(i, j) in place of w(i + 1, j)", ("w[i + 1][j]", "w[i][j]")),
    ruled("t2_equal_width", "todo2_shape", "buckets that no request has", "b = [-(-u[-1] * i // k) for i in range(1, k + 1)]"),
    ruled("t2_smallest_lengths", "todo2_shape", "leaves the longest out", "b = u[:k]"),
    ruled("t2_quantiles", "todo2_small", "equal shares of requests", "s = sorted(lengths)\nb = sorted({s[-(-len(s) * i // k) - 1] for i in range(1, k + 1)})"),
    ruled("t2_quantiles_of_distinct", "todo2_small", "equal shares of distinct lengths", "b = sorted({u[-(-len(u) * i // k) - 1] for i in range(1, k + 1)})"),
    ruled("t2_repeats_buckets", "todo2_fewer", "always k buckets, repeated if need be", "import itertools\n"
          "padding = lambda g: sum(min(x for x in g if x >= n) - n for n in lengths)\n"
          "groups = itertools.combinations_with_replacement(u, k)\n"
          "b = list(min((g for g in groups if g[-1] == u[-1]), key=padding))"),
    ruled("t2_largest_gaps", "todo2_optimal", "cuts at the largest gaps", "cuts = sorted(range(1, len(u)), key=lambda i: u[i - 1] - u[i])[: k - 1]\nb = sorted({u[i - 1] for i in cuts} | {u[-1]})"),
    ruled("t2_most_common", "todo2_small", "the most common lengths", "b = sorted({n for n, _ in Counter(lengths).most_common(k - 1)} | {u[-1]})"),
    ruled("t2_greedy_adds", "todo2_optimal", "adds the best bucket, one by one", "padding = lambda g: sum(min(x for x in g if x >= n) - n for n in lengths)\n"
          "b = [u[-1]]\n"
          "while len(b) < min(k, len(u)):\n"
          "    b = min((sorted(b + [x]) for x in u if x not in b), key=padding)"),
    ruled("t2_greedy_removes", "todo2_optimal", "drops the least useful bucket, one by one", "padding = lambda g: sum(min(x for x in g if x >= n) - n for n in lengths)\n"
          "b = u\n"
          "while len(b) > k:\n"
          "    b = min(([y for y in b if y != x] for x in b[:-1]), key=padding)"),
    ruled("t2_least_worst_case", "todo2_optimal", "the least largest padding, not the least sum", "import itertools\n"
          "worst = lambda g: max(min(x for x in g if x >= n) - n for n in lengths)\n"
          "groups = (g for c in range(1, k + 1) for g in itertools.combinations(u, c) if g[-1] == u[-1])\n"
          "b = list(min(groups, key=lambda g: (worst(g), len(g))))"),
    # TODO 3
    picked("t3_strictly_larger", "todo3_exact", "b > length", "min((b for b in buckets if b > length), default=None)"),
    picked("t3_truncates", "todo3_none", "the largest bucket when none fits", "min((b for b in buckets if b >= length), default=max(buckets, default=None))"),
    picked("t3_raises", "todo3_none", "min of nothing", "min(b for b in buckets if b >= length)"),
    picked("t3_zero_for_none", "todo3_none", "0", "min((b for b in buckets if b >= length), default=0)"),
    picked("t3_nearest", "todo3_smallest", "the nearest bucket, also a smaller one", "min(buckets, key=lambda b: abs(b - length), default=None)"),
    picked("t3_largest", "todo3_smallest", "the largest that fits", "max((b for b in buckets if b >= length), default=None)"),
    picked("t3_largest_below", "todo3_smallest", "rounds down", "max((b for b in buckets if b <= length), default=None)"),
    picked("t3_index", "todo3_smallest", "the position in the table", "next((i for i, b in enumerate(buckets) if b >= length), None)"),
    picked("t3_padding", "todo3_smallest", "how much to pad", "min((b - length for b in buckets if b >= length), default=None)"),
    picked("t3_first", "todo3_hidden", "the first that fits in an unsorted table", "next((b for b in buckets if b >= length), None)"),
    picked("t3_sorts_the_table", "todo3_hidden", "buckets.sort()", "buckets.sort() or next((b for b in buckets if b >= length), None)"),
)  # fmt: skip

VARIANTS = (
    written(
        "v1_guards_as_functions", "", "a list of guards", SIMULATE,
        """\
    kinds = {"auto": None, "static": False, "dynamic": True}
    if mode not in kinds:
        raise ValueError("unknown mode")
    guards, out = [], []

    def compile_for(n):
        if n == 1:
            guards.append(lambda x: x == 1)
            return "new_one"
        wants = kinds[mode] if kinds[mode] is not None else len(guards) > 0
        guards.append((lambda x: x > 1) if wants else (lambda x, n=n: x == n))
        return "new_dynamic" if wants else "new_static"

    for n in sizes:
        if any(guard(n) for guard in guards):
            out.append("hit")
        else:
            out.append(compile_for(n) if len(guards) < limit else "eager_limit")
    return out
""",
    ),
    written(
        "v1_table_of_sizes", "", "a dict of entries, a tuple of events", SIMULATE,
        """\
    if mode == "static":
        first = rest = "new_static"
    elif mode == "dynamic":
        first = rest = "new_dynamic"
    elif mode == "auto":
        first, rest = "new_static", "new_dynamic"
    else:
        raise ValueError(mode)
    entries, events = {}, ()
    for n in sizes:
        key = n if n in entries else "any" if n > 1 and "any" in entries else None
        if key is not None:
            event = "hit"
        elif len(entries) == limit:
            event = "eager_limit"
        else:
            event = "new_one" if n == 1 else rest if entries else first
            entries["any" if event == "new_dynamic" else n] = True
        events += (event,)
    return events
""",
    ),
    ruled("v2_brute_force", "", "all combinations", "import itertools\n"
          "padding = lambda g: sum(min(x for x in g if x >= n) - n for n in lengths)\n"
          "groups = (g for c in range(1, k + 1) for g in itertools.combinations(u, c) if g[-1] == u[-1])\n"
          "b = list(min(groups, key=lambda g: (padding(g), len(g))))"),
    ruled("v2_recursion", "", "from the longest length down", "from functools import lru_cache\n"
          "@lru_cache(None)\n"
          "def best(top, left):\n"
          "    alone = sum(u[top] - n for n in lengths if n <= u[top])\n"
          "    options = [(alone, 1, (u[top],))]\n"
          "    for cut in range(top) if left > 1 else ():\n"
          "        padding, used, b = best(cut, left - 1)\n"
          "        here = sum(u[top] - n for n in lengths if u[cut] < n <= u[top])\n"
          "        options.append((padding + here, used + 1, b + (u[top],)))\n"
          "    return min(options)\n"
          "b = list(best(len(u) - 1, k)[2])"),
    ruled("v2_other_tie", "", "the other of two equal groups, a tuple", "import itertools\n"
          "padding = lambda g: sum(min(x for x in g if x >= n) - n for n in lengths)\n"
          "groups = [g for c in range(1, k + 1) for g in itertools.combinations(u, c) if g[-1] == u[-1]]\n"
          "b = min(reversed(groups), key=lambda g: (padding(g), len(g)))"),
    written("v3_loop", "", "a loop", PICK, "    best = None\n    for b in buckets:\n        if b >= length and (best is None or b < best):\n"
            "            best = b\n    return best\n"),
    written("v3_bisect", "", "sorts a copy and searches", PICK, "    import bisect\n\n    table = sorted(buckets)\n"
            "    at = bisect.bisect_left(table, length)\n    return table[at] if at < len(table) else None\n"),
)  # fmt: skip
