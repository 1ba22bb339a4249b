"""Wrong and equivalent solutions of chapter 7."""

from grader.tests.mutants.framework import Mutant, Rules

RULES = Rules(only_assertions=True, message_parts=("应得", "实得", "可能的原因"))

KERNEL_COUNT = "kernels[name] = kernels.get(name, 0) + count"
IF_COMPILE = "if name in compiling:"
HERE = "here = event['device'] == device and not event['annotation']"
CPU_KERNEL = "is_kernel = here and 'cpp_fused' in name"
CUDA_KERNEL = "is_kernel = here and not name.startswith(('Memcpy', 'Memset'))"
OBSERVED = "if any(FUSED_NAME.search(name) for name in kernels):"
CAPTURED = "elif any(event['name'].startswith(GRAPH_MARKERS) for event in events):"

PICKS = "picks = rng.choices(range(size), k=size)"
RATIO = "statistics.median(a[i] for i in picks) / statistics.median(b[i] for i in picks)"
RNG = "rng, size, ratios = random.Random(seed), len(a), []"
TAIL = "tail = n * 25 // 1000"
ENDS = "low, high = ratios[tail], ratios[n - 1 - tail]"
POINT = "speedup = statistics.median(a) / statistics.median(b)"

BAND = "band = max(policy['min_gain'], aa_high - 1, 1 / aa_low - 1)"
VERDICT = "(faster if low > 1 + band else slower if high < 1 / (1 + band) else tie).append(row)"
ENOUGH = "if LEVELS.index(row['level']) >= required]"
PROFIT = "elif not faster or len(slower) > len(faster):"
EVIDENCE = "elif faster and not accepted:"
FAILED = "if len(measured) < len(rows):"
NUMBERS = "elif any(row['output_close'] is not True for row in measured):"
BREAKS = "elif any(row['graph_breaks'] != 0 or row['recompiles'] != 0 for row in measured):"


def patched(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    """The reference with a few words changed."""
    return Mutant(name, caught_by, what, patch=patch)


def rewritten(name: str, caught_by: str, what: str, cell: str, source: str) -> Mutant:
    """A solution cell written anew."""
    return Mutant(name, caught_by, what, source=source, cell=cell)


TODO_1 = (
    patched(
        "t1_counts_rows", "todo1_counts", "adds one per row", (KERNEL_COUNT, "kernels[name] = kernels.get(name, 0) + 1")
    ),
    patched("t1_overwrites", "todo1_counts", "the last row of a name wins", (KERNEL_COUNT, "kernels[name] = count")),
    patched(
        "t1_first_row_only",
        "todo1_counts",
        "the first row of a name wins",
        (KERNEL_COUNT, "kernels.setdefault(name, count)"),
    ),
    patched(
        "t1_host_counts_rows",
        "todo1_clean",
        "dropped host events counted by rows",
        ("dropped['host'] += count", "dropped['host'] += 1"),
    ),
    patched(
        "t1_busy_rows_only",
        "todo1_counts",
        "ignores rows without time of their own",
        (HERE, HERE + " and event['self_us'] > 0"),
    ),
    patched(
        "t1_starts_with",
        "todo1_clean",
        "the name must start so",
        (CPU_KERNEL, "is_kernel = here and name.startswith('cpp_fused')"),
    ),
    patched("t1_every_cpu_event", "todo1_clean", "every CPU event is a kernel", (CPU_KERNEL, "is_kernel = here")),
    patched(
        "t1_aten_is_a_kernel",
        "todo1_clean",
        "aten operators count as kernels",
        (CPU_KERNEL, "is_kernel = here and ('cpp_fused' in name or name.startswith('aten::'))"),
    ),
    patched(
        "t1_only_dynamo_timed",
        "todo1_polluted",
        "drops only the rows that end in (dynamo_timed)",
        (IF_COMPILE, "if name.endswith('(dynamo_timed)'):"),
    ),
    patched(
        "t1_only_compile_id",
        "todo1_polluted",
        "drops only the rows with a compile_id",
        (IF_COMPILE, "if 'compile_id=' in name:"),
    ),
    patched("t1_keeps_compile", "todo1_polluted", "compile events are host events", (IF_COMPILE, "if False:")),
    patched(
        "t1_kernel_before_compile",
        "todo1_polluted",
        "asks for a kernel first",
        (IF_COMPILE, "if name in compiling and not is_kernel:"),
    ),
    patched(
        "t1_skips_compile_rows",
        "todo1_polluted",
        "compile events are not counted at all",
        ("dropped['compile'] += count", "pass"),
    ),
    patched(
        "t1_cuda_by_name",
        "todo1_cuda",
        "on CUDA only names that Inductor gives",
        (CUDA_KERNEL, "is_kernel = here and bool(FUSED_NAME.search(name))"),
    ),
    patched("t1_keeps_memcpy", "todo1_cuda", "copies are kernels", (CUDA_KERNEL, "is_kernel = here")),
    patched(
        "t1_keeps_memset",
        "todo1_cuda",
        "forgets Memset",
        (CUDA_KERNEL, "is_kernel = here and not name.startswith('Memcpy')"),
    ),
    patched(
        "t1_both_sides",
        "todo1_cuda",
        "counts a kernel's host row too",
        (
            CUDA_KERNEL,
            "is_kernel = here and not name.startswith(('Memcpy', 'Memset')) or bool(FUSED_NAME.search(name))",
        ),
    ),
    patched(
        "t1_cpu_takes_triton",
        "todo1_cuda",
        "on the CPU the launch of a Triton kernel counts",
        (CPU_KERNEL, "is_kernel = here and bool(FUSED_NAME.search(name))"),
    ),
    patched("t1_annotation", "todo1_annotation", "ignores annotation", (HERE, "here = event['device'] == device")),
    patched("t1_any_kernel", "todo1_level", "any kernel is a fused one", (OBSERVED, "if kernels:")),
    patched(
        "t1_level_from_events",
        "todo1_cuda",
        "looks for fused names in all events",
        (OBSERVED, "if any(FUSED_NAME.search(event['name']) for event in events):"),
    ),
    patched(
        "t1_captured_by_compile",
        "todo1_level",
        "compile events prove a capture",
        (CAPTURED, "elif dropped['compile'] or any(event['name'].startswith(GRAPH_MARKERS) for event in events):"),
    ),
    patched("t1_no_capture_level", "todo1_level", "two levels only", (CAPTURED, "elif False:")),
    patched(
        "t1_never_none",
        "todo1_record",
        "capture_only is the least",
        ("    level = 'none'\n", "    level = 'capture_only'\n"),
    ),
    patched(
        "t1_one_marker",
        "todo1_annotation",
        "knows only the first marker",
        (CAPTURED, "elif any(event['name'].startswith(GRAPH_MARKERS[0]) for event in events):"),
    ),
    patched(
        "t1_pops",
        "todo1_pure",
        "empties the caller's list",
        (
            "    level = 'none'\n",
            "    level = 'none'\n    seen = list(events)\n    events.clear()\n    events = seen\n",
        ),
    ),
)

TODO_2 = (
    patched(
        "t2_mean",
        "todo2_median",
        "mean instead of median",
        (POINT, "speedup = statistics.mean(a) / statistics.mean(b)"),
    ),
    patched(
        "t2_inverted", "todo2_median", "b over a", (POINT, "speedup = statistics.median(b) / statistics.median(a)")
    ),
    patched(
        "t2_median_of_ratios",
        "todo2_median",
        "median of the ratios",
        (POINT, "speedup = statistics.median(x / y for x, y in zip(a, b))"),
    ),
    patched(
        "t2_upper_median",
        "todo2_median",
        "takes the upper one of two middle values",
        (POINT, "speedup = sorted(a)[len(a) // 2] / sorted(b)[len(b) // 2]"),
    ),
    patched(
        "t2_best_of",
        "todo2_median",
        "ratio of the minima",
        (POINT, "speedup = min(a) / min(b)"),
    ),
    patched(
        "t2_bootstrap_median",
        "todo2_median",
        "the middle of the resampled ratios as the estimate",
        (POINT, "speedup = statistics.mean(ratios)"),
    ),
    patched(
        "t2_unpaired",
        "todo2_pairs",
        "draws a and b apart",
        (PICKS, PICKS + "\n        other = rng.choices(range(size), k=size)"),
        (RATIO, RATIO.replace("b[i] for i in picks", "b[i] for i in other")),
    ),
    patched("t2_no_replacement", "todo2_pairs", "a permutation", (PICKS, "picks = rng.sample(range(size), k=size)")),
    patched(
        "t2_sorted_pairs",
        "todo2_pairs",
        "resamples a only",
        (RATIO, "statistics.median(a[i] for i in picks) / statistics.median(b)"),
    ),
    patched(
        "t2_half_sample",
        "todo2_interval",
        "half as many pairs",
        (PICKS, "picks = rng.choices(range(size), k=(size + 1) // 2)"),
    ),
    patched(
        "t2_double_sample",
        "todo2_interval",
        "twice as many pairs",
        (PICKS, "picks = rng.choices(range(size), k=2 * size)"),
    ),
    patched("t2_five_percent", "todo2_interval", "90 % interval", (TAIL, "tail = n * 50 // 1000")),
    patched("t2_min_max", "todo2_interval", "the extremes", (TAIL, "tail = 0")),
    patched("t2_one_percent", "todo2_interval", "99 % interval", (TAIL, "tail = n * 5 // 1000")),
    patched(
        "t2_mean_inside",
        "todo2_interval",
        "mean of the resampled times",
        (RATIO, RATIO.replace("statistics.median", "statistics.fmean")),
    ),
    patched(
        "t2_quartiles",
        "todo2_interval",
        "the middle half",
        (TAIL, "tail = n // 4"),
    ),
    patched(
        "t2_unsorted",
        "todo2_interval",
        "forgets to sort",
        ("    ratios.sort()\n", ""),
        (ENDS, "low, high = sorted([ratios[tail], ratios[n - 1 - tail]])"),
    ),
    patched("t2_no_seed", "todo2_seed", "its own entropy", ("random.Random(seed)", "random.Random()")),
    patched("t2_fixed_seed", "todo2_seed", "seed written down", ("random.Random(seed)", "random.Random(0)")),
    patched(
        "t2_global_seed",
        "todo2_pure",
        "seeds the module",
        (RNG, "random.seed(seed)\n    rng, size, ratios = random, len(a), []"),
    ),
    patched("t2_fixed_n", "todo2_resamples", "always 1000", ("for _ in range(n):", "n = 1000\n    for _ in range(n):")),
    patched("t2_sorts_input", "todo2_pure", "sorts the caller's list at the end", (POINT, POINT + "\n    a.sort()")),
    patched(
        "t2_tuple_of_three", "todo2_record", "adds the estimate to the interval", (ENDS, ENDS + "\n    low = [low]")
    ),
)

TODO_3 = (
    patched(
        "t3_any_part_faster",
        "todo3_verdict",
        "the upper end counts",
        (VERDICT, VERDICT.replace("low > 1 + band", "high > 1 + band")),
    ),
    patched(
        "t3_middle",
        "todo3_verdict",
        "the middle counts",
        (VERDICT, VERDICT.replace("low > 1 + band", "(low + high) / 2 > 1 + band")),
    ),
    patched(
        "t3_lower_slower",
        "todo3_verdict",
        "slower by its lower end",
        (VERDICT, VERDICT.replace("high < 1 /", "low < 1 /")),
    ),
    patched("t3_equal_faster", "todo3_verdict", ">= for faster", (VERDICT, VERDICT.replace("low > 1", "low >= 1"))),
    patched("t3_equal_slower", "todo3_verdict", "<= for slower", (VERDICT, VERDICT.replace("high < 1", "high <= 1"))),
    patched(
        "t3_asymmetric",
        "todo3_verdict",
        "1 - band",
        (VERDICT, VERDICT.replace("1 / (1 + band)", "1 - band")),
    ),
    patched("t3_no_aa", "todo3_band", "ignores the A/A control", (BAND, "band = policy['min_gain']")),
    patched("t3_aa_high_only", "todo3_band", "one side of A/A", (BAND, "band = max(policy['min_gain'], aa_high - 1)")),
    patched(
        "t3_aa_low_linear",
        "todo3_band",
        "1 - low",
        (BAND, "band = max(policy['min_gain'], aa_high - 1, 1 - aa_low)"),
    ),
    patched("t3_no_floor", "todo3_band", "no least gain", (BAND, "band = max(aa_high - 1, 1 / aa_low - 1)")),
    patched("t3_zero_band", "todo3_verdict", "above 1 is faster", (BAND, "band = 0")),
    patched(
        "t3_sum_band",
        "todo3_band",
        "adds the A/A deviation to the least gain",
        (BAND, "band = policy['min_gain'] + max(0, aa_high - 1, 1 / aa_low - 1)"),
    ),
    patched(
        "t3_common_band",
        "todo3_band",
        "the widest A/A for all",
        (
            BAND,
            "band = max([policy['min_gain'], *(max(r['aa_ci95'][1], 1 / r['aa_ci95'][0]) - 1 for r in measured)])",
        ),
    ),
    patched(
        "t3_numbers_before_failure",
        "todo3_precedence",
        "wrong numbers first",
        (FAILED, "if any(row['output_close'] is not True for row in measured):"),
        (NUMBERS, "elif len(measured) < len(rows):"),
        ("reason = 'failure'", "reason = 'WRONG'"),
        ("reason = 'wrong_numbers'", "reason = 'failure'"),
        ("reason = 'WRONG'", "reason = 'wrong_numbers'"),
    ),  # fmt: skip
    patched("t3_no_failure", "todo3_precedence", "failed rows are skipped", (FAILED, "if False:")),
    patched("t3_no_numbers", "todo3_precedence", "numbers are not looked at", (NUMBERS, "elif False:")),
    patched(
        "t3_numbers_of_faster",
        "todo3_precedence",
        "only the winners' numbers",
        (NUMBERS, "elif any(row['output_close'] is not True for row in faster):"),
    ),
    patched(
        "t3_no_recompiles",
        "todo3_precedence",
        "only breaks",
        (BREAKS, "elif any(row['graph_breaks'] != 0 for row in measured):"),
    ),
    patched(
        "t3_no_breaks",
        "todo3_precedence",
        "only recompiles",
        (BREAKS, "elif any(row['recompiles'] != 0 for row in measured):"),
    ),
    patched("t3_no_evidence", "todo3_precedence", "evidence is never asked for", (EVIDENCE, "elif False:")),
    patched(
        "t3_evidence_without_winner",
        "todo3_profit",
        "no winner is called no evidence",
        (EVIDENCE, "elif not accepted:"),
    ),
    patched(
        "t3_every_winner_needs_evidence",
        "todo3_accept",
        "one unproven winner spoils the rest",
        (EVIDENCE, "elif len(accepted) < len(faster):"),
    ),
    patched("t3_accepts_unproven", "todo3_accept", "accepts unproven winners", (ENOUGH, "]")),
    patched(
        "t3_levels_as_words",
        "todo3_policy",
        "compares the levels' words",
        (ENOUGH, "if row['level'] >= policy['required_level']]"),
    ),
    patched("t3_level_equal", "todo3_policy", "exactly the required level", (ENOUGH, ENOUGH.replace(">=", "=="))),
    patched("t3_slower_allowed", "todo3_precedence", "losers don't matter", (PROFIT, "elif not faster:")),
    patched("t3_no_loser_allowed", "todo3_profit", "as many losers as winners", (PROFIT, PROFIT.replace(">", ">="))),
    patched(
        "t3_losers_against_proven",
        "todo3_profit",
        "compares with the proven winners only",
        (PROFIT, "elif not faster or len(slower) > len(accepted):"),
    ),
    patched("t3_empty_accepts", "todo3_profit", "no rows is fine", (PROFIT, "elif len(slower) > len(faster):")),
    patched(
        "t3_lists_emptied",
        "todo3_precedence",
        "clears tie and slower with a reason",
        ("        reason = None\n", "        reason = None\n    if reason:\n        tie, slower = [], []\n"),
    ),
    patched(
        "t3_required_fixed",
        "todo3_policy",
        "required level written down",
        ("policy['required_level']", "'kernel_observed'"),
    ),
    patched("t3_gain_fixed", "todo3_policy", "least gain written down", ("policy['min_gain']", "0.05")),
    patched(
        "t3_sorts_rows",
        "todo3_pure",
        "sorts the caller's rows",
        (
            "    faster, tie, slower = [], [], []\n",
            "    faster, tie, slower = [], [], []\n    rows.sort(key=lambda row: row['token_count'])\n",
        ),
    ),
)

MUTANTS = TODO_1 + TODO_2 + TODO_3

VARIANTS = (
    rewritten(
        "v1_counter",
        "",
        "collections.Counter and early continue",
        "todo1",
        """\
from collections import Counter


def kernel_evidence(events, device):
    names, found, compile_calls, host_calls = compile_event_names(events), Counter(), 0, 0
    for e in events:
        if e['name'] in names:
            compile_calls += e['count']
            continue
        ok = e['device'] == device and e['annotation'] is False
        if device == 'cpu':
            ok = ok and re.search('cpp_fused', e['name']) is not None
        else:
            ok = ok and e['name'][:6] not in ('Memcpy', 'Memset')
        if ok:
            found.update({e['name']: e['count']})
        else:
            host_calls += e['count']
    marked = [e for e in events if e['name'].split(' ')[:2] in (['Torch-Compiled', 'Region:'], ['##', 'Call'])]
    fused = [name for name in found if 'triton_' in name or 'cpp_fused' in name]
    level = 'kernel_observed' if fused else ('capture_only' if marked else 'none')
    return {'level': level, 'kernels': dict(found), 'dropped': {'host': host_calls, 'compile': compile_calls}}
""",
    ),
    rewritten(
        "v2_randrange",
        "",
        "other draws of the same bootstrap, own median, a tuple as interval",
        "todo2",
        """\
def paired_speedup(a, b, seed, n=1000):
    import random

    def middle(values):
        values = sorted(values)
        half = len(values) // 2
        return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2

    r = random.Random(seed)
    pairs = list(zip(a, b))
    out = []
    for _ in range(n):
        drawn = [pairs[r.randrange(len(pairs))] for _ in pairs]
        out.append(middle(x for x, _ in drawn) / middle(y for _, y in drawn))
    out = sorted(out)
    k = int(0.025 * n)
    return {'ci95': (out[k], out[-1 - k]), 'speedup': middle(a) / middle(b)}
""",
    ),
    rewritten(
        "v3_helpers",
        "",
        "early returns and helper functions",
        "todo3",
        """\
ORDER = {'none': 0, 'capture_only': 1, 'kernel_observed': 2}


def verdict_of(row, policy):
    beta = max([policy['min_gain'], row['aa_ci95'][1] - 1, 1 / row['aa_ci95'][0] - 1])
    if row['ci95'][0] > 1 + beta:
        return 'faster'
    return 'slower' if row['ci95'][1] < 1 / (1 + beta) else 'tie'


def decide(rows, policy):
    done = [row for row in rows if 'ci95' in row]
    groups = {'faster': [], 'tie': [], 'slower': []}
    for row in done:
        groups[verdict_of(row, policy)].append(row)
    proven = [r for r in groups['faster'] if ORDER[r['level']] >= ORDER[policy['required_level']]]

    def answer(reason):
        return {
            'decision': 'accept_for_selected_shapes' if reason is None else 'tune_or_fallback',
            'reason': reason,
            'accepted': [r['token_count'] for r in proven] if reason is None else [],
            'tie': [r['token_count'] for r in groups['tie']],
            'slower': [r['token_count'] for r in groups['slower']],
        }

    if len(done) != len(rows):
        return answer('failure')
    if not all(r['output_close'] for r in done):
        return answer('wrong_numbers')
    if sum(r['graph_breaks'] + r['recompiles'] for r in done):
        return answer('break_or_recompile')
    if groups['faster'] and not proven:
        return answer('no_evidence')
    if not groups['faster'] or len(groups['slower']) > len(groups['faster']):
        return answer('no_profit')
    return answer(None)
""",
    ),
)
