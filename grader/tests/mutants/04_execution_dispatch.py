"""Wrong and equivalent solutions of chapter 4.

The first 52 follow ``grader/tests/cases/wrong-implementations.json`` by name; names that start with ``own_`` are ours.
"""

from grader.tests.mutants.framework import Mutant, Rules

RULES = Rules(
    only_assertions=True,
    message_parts=("应得", "实得", "可能的原因"),
    borrowed={2: frozenset({"todo3_own_gate", "todo3_all"})},
)

SORTED = "sorted(FUSION_PATTERNS.items(), key=lambda item: len(item[0]), reverse=True)"
PATTERN = "candidate.get('pattern') in backend.get('patterns', [])"
DTYPE = "workload.get('dtype') in backend.get('dtypes', [])"
DEVICE = "workload.get('device') in backend.get('devices', [])"
SEQUENCE = "workload.get('seq_len', 0) <= backend.get('max_seq_len', 0)"
DYNAMIC = "not workload.get('dynamic_shape', False) or backend.get('supports_dynamic_shape') is True"
SELECTED = "next((report for report in capability_reports if report['supported']), None)"
SUPPORTED = "[report for report in capability_reports if report['supported']]"


def order(name: str, caught_by: str, what: str, new: str) -> Mutant:
    """TODO 1 with another right-hand side."""
    return Mutant(name, caught_by, what, patch=((SORTED, new),))


def scan(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    """TODO 1 with a change in the given scan, as someone who edits it would make it."""
    return Mutant(name, caught_by, what, patch=patch)


def gate(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    """TODO 2 with other right-hand sides or another report."""
    return Mutant(name, caught_by, what, patch=patch)


def select(name: str, caught_by: str, what: str, new: str) -> Mutant:
    """TODO 3 with another right-hand side."""
    return Mutant(name, caught_by, what, patch=((SELECTED, new),))


OPTIMAL_COVER = """\
def identify_fusion_candidates(ops):
    best = [(0, [])]
    for end in range(1, len(ops) + 1):
        choice = best[end - 1]
        for pattern, name in FUSION_PATTERNS.items():
            start = end - len(pattern)
            if start >= 0 and tuple(ops[start:end]) == pattern:
                record = {'pattern': name, 'start': start, 'end': end, 'ops': list(ops[start:end])}
                choice = max(choice, (best[start][0] + len(pattern), best[start][1] + [record]), key=lambda c: c[0])
        best.append(choice)
    return best[-1][1]
"""

IMPORT_TIME = """\
ORDERED = sorted(FUSION_PATTERNS.items(), key=lambda item: len(item[0]), reverse=True)


def identify_fusion_candidates(ops):
    candidates, position = [], 0
    while position < len(ops):
        for pattern, name in ORDERED:
            end = position + len(pattern)
            if tuple(ops[position:end]) == pattern:
                candidates.append({'pattern': name, 'start': position, 'end': end, 'ops': list(ops[position:end])})
                position = end
                break
        else:
            position += 1
    return candidates
"""

MATCH = "if tuple(ops[position:end]) == tuple(pattern):"
APPEND = "candidates.append({'pattern': name, 'start': position, 'end': end, 'ops': list(ops[position:end])})"
FOUR_NAMES = """\
[(pattern, name) for wanted in ('swiglu', 'sampling_chain', 'qkv_rope', 'residual_rmsnorm')
                        for pattern, name in FUSION_PATTERNS.items() if name == wanted]"""

TODO_1 = (
    order("t1_dict_order", "todo1_longest", "no sort", "FUSION_PATTERNS.items()"),
    order("t1_shortest_first", "todo1_longest", "ascending", SORTED.replace("reverse=True", "reverse=False")),
    order("t1_sort_by_name_len", "todo1_longest", "length of the pattern's name", SORTED.replace("item[0]", "item[1]")),
    order(
        "t1_sort_by_op_chars",
        "todo1_longest",
        "longest op name, in characters",
        "sorted(FUSION_PATTERNS.items(), key=lambda item: max(map(len, item[0]), default=0), reverse=True)",
    ),
    order("t1_hardcoded_order", "todo1_longest", "only the four known names", FOUR_NAMES),
    Mutant("t1_import_time_cache", "todo1_registry", "sorts once at import", source=IMPORT_TIME, cell="todo1"),
    order(
        "t1_name_keyed_dict",
        "todo1_registry",
        "inverted to {name: ops}: shared names collapse",
        "sorted(((p, n) for n, p in {n: p for p, n in FUSION_PATTERNS.items()}.items()), key=lambda i: -len(i[0]))",
    ),
    order(
        "t1_only_longest_kept",
        "todo1_longest",
        "keeps only the patterns of the greatest length",
        "[item for item in FUSION_PATTERNS.items() if len(item[0]) == max(map(len, FUSION_PATTERNS))]",
    ),
    scan("t1_consume_minus_one", "todo1_consume", "goes on at end - 1", ("position = end\n", "position = end - 1\n")),
    scan(
        "t1_skip_node_after_match", "todo1_consume", "goes on at end + 1", ("position = end\n", "position = end + 1\n")
    ),
    Mutant("t1_optimal_cover_dp", "todo1_leftmost", "covers most nodes", source=OPTIMAL_COVER, cell="todo1"),
    scan(
        "t1_each_pattern_once",
        "todo1_consume",
        "reports each pattern once",
        (
            MATCH,
            MATCH.removesuffix(":") + " and name not in [c['pattern'] for c in candidates]:",
        ),
    ),
    scan(
        "t1_none_when_empty",
        "todo1_no_match",
        "None without a match",
        ("return candidates", "return candidates or None"),
    ),
    scan("t1_ops_tuple", "todo1_record", "ops is a tuple", (APPEND, APPEND.replace("list(ops[", "tuple(ops["))),
    scan(
        "t1_wraparound",
        "todo1_no_match",
        "a match may wrap around the end",
        (MATCH, "if tuple(ops[i % len(ops)] for i in range(position, end)) == tuple(pattern):"),
    ),
    order(
        "own_t1_keys_only",
        "todo1_record",
        "sorts the keys, drops the names",
        "sorted(FUSION_PATTERNS, key=len, reverse=True)",
    ),
    order("own_t1_one_pattern", "todo1_default_table", "drops the last pattern", SORTED + "[:-1]"),
    order(
        "own_t1_max_only",
        "todo1_default_table",
        "takes one pattern",
        "[max(FUSION_PATTERNS.items(), key=lambda i: len(i[0]))]",
    ),
    order(
        "own_t1_last_op_chars",
        "todo1_longest",
        "total characters of the ops, ascending",
        "sorted(FUSION_PATTERNS.items(), key=lambda i: sum(map(len, i[0])))",
    ),
    order(
        "own_t1_alphabetical",
        "todo1_longest",
        "sorts by name",
        "sorted(FUSION_PATTERNS.items(), key=lambda item: item[1])",
    ),
    order(
        "own_t1_pairs_not_long",
        "todo1_longest",
        "len of the pair, always 2",
        "sorted(FUSION_PATTERNS.items(), key=len, reverse=True)",
    ),
    scan(
        "own_t1_as_set",
        "todo1_no_match",
        "compares as sets: order ignored",
        (MATCH, "if set(ops[position:end]) == set(pattern):"),
    ),
    scan(
        "own_t1_prefix_at_end",
        "todo1_no_match",
        "a cut pattern at the end matches",
        (MATCH, "if tuple(ops[position:end]) == tuple(pattern)[:len(ops) - position]:"),
    ),
    scan(
        "own_t1_inclusive_end",
        "todo1_record",
        "end is inclusive",
        (APPEND, APPEND.replace("'end': end", "'end': end - 1")),
    ),
    scan(
        "own_t1_one_candidate",
        "todo1_default_table",
        "returns the first candidate only",
        ("return candidates", "return candidates[:1]"),
    ),
    scan(
        "own_t1_pops_ops",
        "todo1_pure",
        "empties the caller's list",
        ("return candidates", "if isinstance(ops, list): ops.clear()\n    return candidates"),
    ),
    scan(
        "own_t1_gap",
        "todo1_no_match",
        "skips unknown nodes between",
        (
            "ordered_patterns = list(",
            "ops = [op for op in ops if any(op in p for p in FUSION_PATTERNS)]\n    ordered_patterns = list(",
        ),
    ),
    scan(
        "own_t1_generator",
        "todo1_record",
        "a generator instead of a list",
        ("return candidates", "return (c for c in candidates)"),
    ),
)

NO_LIST = "backend.get('patterns', [])"
BARE_REASONS = "[reason for reason, passed in checks.items() if not passed]"
TODO_2 = (
    gate("t2_seq_strict", "todo2_sequence", "< for <=", (SEQUENCE, SEQUENCE.replace("<=", "<"))),
    gate("t2_seq_always_true", "todo2_sequence", "no length gate", (SEQUENCE, "True")),
    gate(
        "t2_seq_missing_limit_unlimited",
        "todo2_missing",
        "no max_seq_len means no limit",
        (SEQUENCE, SEQUENCE.replace("backend.get('max_seq_len', 0)", "backend.get('max_seq_len', float('inf'))")),
    ),
    gate(
        "t2_seq_dynamic_bypass",
        "todo2_sequence",
        "dynamic inputs skip the length gate",
        (SEQUENCE, f"workload.get('dynamic_shape', False) or {SEQUENCE}"),
    ),
    gate("t2_device_always_true", "todo2_device", "no device gate", (DEVICE, "True")),
    gate(
        "t2_device_first_only",
        "todo2_device",
        "first device only",
        (DEVICE, "workload.get('device') == next(iter(backend.get('devices', [])), None)"),
    ),
    gate(
        "t2_dtype_bitwidth",
        "todo2_dtype",
        "compares bit widths",
        (DTYPE, "str(workload.get('dtype'))[-2:] in [str(d)[-2:] for d in backend.get('dtypes', [])]"),
    ),
    gate(
        "t2_dtype_first_only",
        "todo2_dtype",
        "first dtype only",
        (DTYPE, "workload.get('dtype') == next(iter(backend.get('dtypes', [])), None)"),
    ),
    gate(
        "t2_dtype_missing_means_any",
        "todo2_missing",
        "no dtypes means all",
        (DTYPE, "'dtypes' not in backend or workload.get('dtype') in backend['dtypes']"),
    ),
    gate("t2_pattern_always_true", "todo2_pattern", "no pattern gate", (PATTERN, "True")),
    gate(
        "t2_pattern_global_registry",
        "todo2_pattern",
        "asks FUSION_PATTERNS, not the backend",
        (PATTERN, "candidate.get('pattern') in FUSION_PATTERNS.values()"),
    ),
    gate(
        "t2_pattern_first_only",
        "todo2_pattern",
        "first pattern only",
        (PATTERN, "candidate.get('pattern') == next(iter(backend.get('patterns', [])), None)"),
    ),
    gate("t2_pattern_keyerror", "todo2_missing", "KeyError without patterns", (NO_LIST, "backend['patterns']")),
    gate(
        "t2_dyn_backend_flag_only",
        "todo2_dynamic",
        "static inputs need the flag too",
        (DYNAMIC, "backend.get('supports_dynamic_shape') is True"),
    ),
    gate(
        "t2_dyn_default_true",
        "todo2_dynamic",
        "no flag means support",
        (DYNAMIC, "not workload.get('dynamic_shape', False) or backend.get('supports_dynamic_shape', True)"),
    ),
    gate(
        "t2_dyn_soft_warning",
        "todo2_dynamic",
        "records the dynamic reason, still supported",
        ("'supported': not reasons", "'supported': not [r for r in reasons if r != 'dynamic_shape_not_supported']"),
    ),
    gate(
        "t2_gate_all_and",
        "todo2_dtype",
        "one gate fails, all fail",
        ("reasons = " + BARE_REASONS, "reasons = list(checks) if not all(checks.values()) else []"),
    ),
    gate("t2_reasons_set", "todo2_report", "reasons is a set", (BARE_REASONS, "{" + BARE_REASONS[1:-1] + "}")),
    gate(
        "t2_swapped_keys",
        "todo2_pass",
        "dtype and device in each other's list",
        (DTYPE, "workload.get('dtype') in backend.get('devices', [])"),
        (DEVICE, "workload.get('device') in backend.get('dtypes', [])"),
    ),
    gate(
        "t2_swapped_reasons",
        "todo2_device",
        "device and length swapped",
        ("'unsupported_device': device_supported", "'unsupported_device': sequence_supported"),
        ("'sequence_too_long': sequence_supported", "'sequence_too_long': device_supported"),
    ),
    gate(
        "own_t2_dtype_substring",
        "todo2_membership",
        "substring of a declared dtype",
        (DTYPE, "any(str(workload.get('dtype')) in d for d in backend.get('dtypes', []))"),
    ),
    gate(
        "own_t2_pattern_joined",
        "todo2_membership",
        "searches the joined names",
        (PATTERN, "str(candidate.get('pattern')) in ' '.join(backend.get('patterns', []))"),
    ),
    gate(
        "own_t2_pattern_prefix",
        "todo2_membership",
        "prefix of a declared pattern",
        (PATTERN, "any(p.startswith(candidate['pattern']) for p in backend.get('patterns', []))"),
    ),
    gate(
        "own_t2_device_prefix",
        "todo2_membership",
        "prefix of a device",
        (DEVICE, "any(str(workload.get('device')).startswith(d) for d in backend.get('devices', []))"),
    ),
    gate(
        "own_t2_first_reason_only",
        "todo2_report",
        "stops at the first failed gate",
        (BARE_REASONS, BARE_REASONS + "[:1]"),
    ),
    gate(
        "own_t2_reasons_sorted",
        "todo2_report",
        "reasons in alphabetical order",
        (BARE_REASONS, f"sorted({BARE_REASONS})"),
    ),
    gate(
        "own_t2_device_depends_on_dtype",
        "todo2_combinations",
        "device passes where dtype failed",
        (DEVICE, f"not dtype_supported or {DEVICE}"),
    ),
    gate(
        "own_t2_length_after_shape",
        "todo2_combinations",
        "dynamic gate passes where the length failed",
        (DYNAMIC, f"not sequence_supported or {DYNAMIC}"),
    ),
    gate(
        "own_t2_pattern_in_ops",
        "todo2_pattern",
        "also wants the pattern to be registered",
        (PATTERN, f"{PATTERN} and candidate.get('pattern') in FUSION_PATTERNS.values()"),
    ),
    gate(
        "own_t2_seq_keyerror",
        "todo2_missing",
        "KeyError without seq_len",
        ("workload.get('seq_len', 0)", "workload['seq_len']"),
    ),
    gate(
        "own_t2_seq_missing_is_long",
        "todo2_missing",
        "no seq_len counts as endless",
        ("workload.get('seq_len', 0)", "workload.get('seq_len', float('inf'))"),
    ),
    gate(
        "own_t2_name_keyerror",
        "todo2_missing",
        "KeyError without a name",
        ("backend.get('name', 'unknown')", "backend['name']"),
    ),
    gate(
        "own_t2_sets_defaults",
        "todo2_pure",
        "writes defaults into the backend",
        ("backend.get('dtypes', [])", "backend.setdefault('dtypes', [])"),
    ),
    gate(
        "own_t2_supported_is_list",
        "todo2_pattern",
        "supported is not a bool",
        ("'supported': not reasons", "'supported': reasons or True"),
    ),
    gate(
        "own_t2_inverted_dynamic",
        "todo2_dynamic",
        "and for or",
        (DYNAMIC, "not workload.get('dynamic_shape', False) and backend.get('supports_dynamic_shape') is True"),
    ),
    gate("own_t2_half_limit", "todo2_sequence", "limit off by one", (SEQUENCE, SEQUENCE.replace("0) <=", "0) - 1 <="))),
)

REJECTED = "{report['backend']: report['reasons'] for report in capability_reports if not report['supported']}"
PRIORITY = "backend.get('priority', 0)"
TODO_3 = (
    select("t3_last_supported", "todo3_priority", "the last one", f"({SUPPORTED} or [None])[-1]"),
    select(
        "t3_only_last_checked",
        "todo3_position",
        "looks at the last report only",
        "next((report for report in capability_reports[-1:] if report['supported']), None)",
    ),
    select(
        "t3_only_second_checked",
        "todo3_position",
        "looks at the second report only",
        "next((report for report in capability_reports[1:2] if report['supported']), None)",
    ),
    select(
        "t3_largest_capacity",
        "todo3_priority",
        "the greatest max_seq_len",
        "max([(b.get('max_seq_len', 0), -i, r) for i, (b, r) in enumerate(zip(backends, capability_reports))"
        " if r['supported']], key=lambda t: t[:2], default=(0, 0, None))[2]",
    ),
    select(
        "t3_sort_by_priority_key",
        "todo3_priority",
        "an invented priority key",
        "next((r for b, r in sorted(zip(backends, capability_reports), key=lambda p: p[0].get('priority', 0))"
        " if r['supported']), None)",
    ),
    select(
        "t3_fewest_reasons",
        "todo3_fallback",
        "fewest reasons, supported or not",
        "min(capability_reports, key=lambda r: len(r['reasons']), default=None)",
    ),
    select(
        "t3_max_empty_raises",
        "todo3_no_backend",
        "max() of an empty list",
        "(lambda best: best if best['supported'] else None)(max(capability_reports, key=lambda r: r['supported']))",
    ),
    select(
        "t3_index_empty_raises",
        "todo3_no_backend",
        "IndexError on an empty list",
        f"({SUPPORTED}[0] if any(r['supported'] for r in capability_reports) else capability_reports[0] and None)",
    ),
    select("t3_next_no_default", "todo3_fallback", "next() without a default", SELECTED.replace(", None)", ")")),
    select("t3_false_instead_of_none", "todo3_fallback", "False for None", SELECTED.replace("None", "False")),
    gate(
        "t3_first_reason_per_backend",
        "todo3_rejected",
        "one reason a backend",
        (REJECTED, REJECTED.replace("report['reasons'] for", "report['reasons'][:1] for")),
    ),
    gate(
        "t3_reasons_joined_string",
        "todo3_rejected",
        "reasons joined to a string",
        (REJECTED, REJECTED.replace("report['reasons'] for", "', '.join(report['reasons']) for")),
    ),
    gate(
        "t3_all_nonselected_rejected",
        "todo3_priority",
        "supported ones behind the winner count as rejected",
        (
            "    if selected is None:",
            "    rejected = {r['backend']: r['reasons'] for r in capability_reports if r is not selected}\n"
            "    if selected is None:",
        ),
    ),
    gate(
        "t3_decision_always_fallback",
        "todo3_priority",
        "decision is always fallback",
        ("'decision': 'optimized', 'rej", "'decision': 'fallback', 'rej"),
    ),
    gate(
        "t3_decision_supported",
        "todo3_priority",
        "decision is 'supported'",
        ("'decision': 'optimized', 'rej", "'decision': 'supported', 'rej"),
    ),
    gate(
        "t3_sorts_backends_inplace",
        "todo3_pure",
        "sorts the caller's list",
        (
            "    capability_reports = [",
            "    backends.sort(key=lambda b: b.get('name', ''))\n    capability_reports = [",
        ),
    ),
    select(
        "t3_static_preferred",
        "todo3_position",
        "prefers static-only backends",
        "next((r for b, r in sorted(zip(backends, capability_reports),"
        " key=lambda p: bool(p[0].get('supports_dynamic_shape'))) if r['supported']), None)",
    ),
    select("own_t3_first_always", "todo3_position", "always the first report", "next(iter(capability_reports), None)"),
    select(
        "own_t3_a_backend",
        "todo3_priority",
        "the backend, not the report",
        SELECTED.replace(
            "(report for report in capability_reports if report['supported'])",
            "(b for b, r in zip(backends, capability_reports) if r['supported'])",
        ),
    ),
    select(
        "own_t3_a_name",
        "todo3_priority",
        "the name, not the report",
        SELECTED.replace("(report for", "(report['backend'] for"),
    ),
    select("own_t3_a_list", "todo3_priority", "the list of supported reports", SUPPORTED),
    select(
        "own_t3_stops_at_refusal",
        "todo3_position",
        "gives up at the first refusal",
        "next((r if r['supported'] else None for r in capability_reports), None)",
    ),
    select(
        "own_t3_smallest_name",
        "todo3_priority",
        "the alphabetically first",
        f"min({SUPPORTED}, key=lambda r: r['backend'], default=None)",
    ),
    select(
        "own_t3_inverted",
        "todo3_priority",
        "the first unsupported",
        SELECTED.replace("if report['supported']", "if not report['supported']"),
    ),
    gate(
        "own_t3_rejected_before_winner_only",
        "todo3_rejected",
        "forgets those behind the winner",
        (
            "    if selected is None:",
            "    if selected is not None:\n"
            "        before = capability_reports[:capability_reports.index(selected)]\n"
            "        rejected = {r['backend']: r['reasons'] for r in before}\n"
            "    if selected is None:",
        ),
    ),
    gate(
        "own_t3_no_reasons_kept",
        "todo3_fallback",
        "keeps no reasons on fallback",
        ("'decision': 'fallback', 'rejected_backends': rejected", "'decision': 'fallback', 'rejected_backends': {}"),
    ),
    gate(
        "own_t3_rejected_names",
        "todo3_rejected",
        "a list of names",
        (REJECTED, "[report['backend'] for report in capability_reports if not report['supported']]"),
    ),
    gate(
        "own_t3_path_none",
        "todo3_fallback",
        "no path on fallback",
        ("'execution_path': 'eager'", "'execution_path': None"),
    ),
    gate(
        "own_t3_pops_backends",
        "todo3_pure",
        "uses up the caller's list",
        ("for backend in backends]", "for backend in [backends.pop(0) for _ in range(len(backends))]]"),
    ),
    gate(
        "own_t3_remembers",
        "todo3_random",
        "answers from a cache keyed by the pattern",
        (
            "    if selected is None:",
            "    selected = CHOICES.setdefault((candidate.get('pattern'), len(backends)), selected)\n"
            "    if selected is None:",
        ),
        ("def dispatch_candidate(", "CHOICES = {}\n\n\ndef dispatch_candidate("),
    ),
)

MUTANTS = TODO_1 + TODO_2 + TODO_3

FIND_LONGEST = """\
def identify_fusion_candidates(ops):
    result = []
    i = 0
    while i < len(ops):
        best = None
        for pattern in FUSION_PATTERNS:
            if list(ops[i:i + len(pattern)]) == list(pattern) and (best is None or len(pattern) > len(best)):
                best = pattern
        if best is None:
            i += 1
            continue
        result += [dict(pattern=FUSION_PATTERNS[best], start=i, end=i + len(best), ops=[*best])]
        i += len(best)
    return result
"""

OWN_GATE = """\
def evaluate_backend_capability(candidate, workload, backend):
    reasons = []
    for key, field, reason in (('patterns', candidate.get('pattern'), 'unsupported_pattern'),
                               ('dtypes', workload.get('dtype'), 'unsupported_dtype'),
                               ('devices', workload.get('device'), 'unsupported_device')):
        if field not in (backend.get(key) or ()):
            reasons.append(reason)
    if workload.get('seq_len', 0) > backend.get('max_seq_len', 0):
        reasons.append('sequence_too_long')
    if workload.get('dynamic_shape') and not backend.get('supports_dynamic_shape'):
        reasons.append('dynamic_shape_not_supported')
    return {'reasons': reasons, 'supported': len(reasons) == 0, 'backend': backend.get('name', 'unknown')}
"""

OWN_DISPATCH = """\
def dispatch_candidate(candidate, workload, backends):
    path, decision, rejected = 'eager', 'fallback', {}
    for backend in backends:
        report = evaluate_backend_capability(candidate, workload, backend)
        if not report['supported']:
            rejected[report['backend']] = list(report['reasons'])
        elif decision == 'fallback':
            path, decision = report['backend'], 'optimized'
    return dict(rejected_backends=dict(reversed(list(rejected.items()))), decision=decision, execution_path=path)
"""

INLINED_DISPATCH = OWN_GATE.replace("evaluate_backend_capability", "_my_gate") + OWN_DISPATCH.replace(
    "evaluate_backend_capability", "_my_gate"
)

VARIANTS = (
    order("v1_negative_key", "", "another key", "sorted(FUSION_PATTERNS.items(), key=lambda item: -len(item[0]))"),
    order("v1_key_with_name", "", "ties by name", "sorted(FUSION_PATTERNS.items(), key=lambda i: (-len(i[0]), i[1]))"),
    order("v1_reversed", "", "an iterator", "reversed(sorted(FUSION_PATTERNS.items(), key=lambda item: len(item[0])))"),
    order("v1_max_chars_then_len", "", "tuple of pairs", f"tuple({SORTED})"),
    order(
        "v1_keys_then_names",
        "",
        "sorts the keys, then looks the names up",
        "[(p, FUSION_PATTERNS[p]) for p in sorted(FUSION_PATTERNS, key=len, reverse=True)]",
    ),
    order("v1_dict", "", "a sorted dict", f"dict({SORTED}).items()"),
    Mutant("v1_other_loop", "", "another loop, longest by comparison", source=FIND_LONGEST, cell="todo1"),
    Mutant(
        "v1_aliased_table",
        "",
        "reads the table at call time through another name",
        source="TABLE = FUSION_PATTERNS\n\n\n" + FIND_LONGEST.replace("FUSION_PATTERNS", "TABLE"),
        cell="todo1",
    ),
    gate(
        "v2_bool_flag",
        "",
        "bool() for is True",
        ("backend.get('supports_dynamic_shape') is True", "bool(backend.get('supports_dynamic_shape', False))"),
    ),
    gate("v2_not_greater", "", "not >", (SEQUENCE, "not workload.get('seq_len', 0) > backend.get('max_seq_len', 0)")),
    gate("v2_any_equal", "", "any()", (DTYPE, "any(d == workload.get('dtype') for d in backend.get('dtypes', []))")),
    gate("v2_sets", "", "sets", (DEVICE, "workload.get('device') in set(backend.get('devices', ()))")),
    gate("v2_index_candidate", "", "candidate['pattern']", ("candidate.get('pattern')", "candidate['pattern']")),
    Mutant("v2_own_function", "", "the whole gate rewritten", source=OWN_GATE, cell="todo2"),
    select("v3_filtered_list", "", "list, then first", f"({SUPPORTED} + [None])[0]"),
    select(
        "v3_not_reasons",
        "",
        "decides by empty reasons",
        SELECTED.replace("if report['supported']", "if not report['reasons']"),
    ),
    Mutant(
        "v3_own_function", "", "the whole dispatch rewritten, keys in another order", source=OWN_DISPATCH, cell="todo3"
    ),
    Mutant("v3_inlined_gate", "", "dispatch with a gate of its own", source=INLINED_DISPATCH, cell="todo3"),
)
