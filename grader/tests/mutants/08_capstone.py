"""Wrong and equivalent solutions of chapter 8."""

# ruff: noqa: E501  (a patch holds one line of a notebook as it stands)

from grader.tests.mutants.framework import Mutant, Rules

RULES = Rules(only_assertions=True, message_parts=("应得", "实得", "可能的原因"))

LOG = "log = FieldLog(workload)"
SELECTED = "selected = select_groups(graph, find_matches(graph), PRIORITY)"
CHOICE = "choice = dispatch_candidate({'pattern': group['pattern']}, log, backends)"
REFUSED = "refused, segments, grouped = selected['refused'], [], set()"
PLAIN_IF = "if node['role'] != 'input' and node['id'] not in grouped:"
PLAIN = "plain = {'nodes': [node['id']], 'pattern': None, 'path': 'eager', 'decision': 'plain', 'rejected': {}}"
ORDER = "segments = run_order(graph, segments)"
FIELDS = "key_fields = sorted(log.fields)"
FIRST_NODE = "[node['id'] for node in graph['nodes']].index(segment['nodes'][0])"

KEY = "key = tuple((field, frozen(workload.get(field))) for field in sorted(plan_key_fields))"
STATUS = "status = 'hit' if key in plan_cache else 'miss'"
STORE = "plan_cache[key] = build(workload)"
MISS = "    if status == 'miss':\n        plan_cache[key] = build(workload)\n    report = plan_cache[key]\n"
REQUEST = "request = workload.get('request', 'auto')"
PATH = "path = report['available'][0] if request == 'auto' else request"
REASONS = "reasons = report['rejected'].get(request, ['unknown_path'])"
RAISE = "raise RuntimeError(f\"requested path {request!r} is not available: {', '.join(reasons)}\")"

TOO_LONG = "if len(operators) > len(plan['segments']):"
PADDED = "operators += [None] * (len(plan['segments']) - len(operators))"
NAMES = "[name for name, count in (seen or {}).items() if count > 0]"
OBSERVED = "[path for path, marks in signatures.items() if any(mark in name for mark in marks for name in names)]"
OTHERS = "others = [path for path in observed if signatures[path] != signatures.get(planned)]"
VERDICT = "verdict = 'unproven' if not observed else 'fell_back' if others else 'confirmed'"
COPY = "evidence['signatures'], list(evidence['segments'])"


def patched(name: str, caught_by: str, what: str, *patch: tuple[str, str]) -> Mutant:
    """The reference with a few words changed."""
    return Mutant(name, caught_by, what, patch=patch)


def rewritten(name: str, caught_by: str, what: str, cell: str, source: str) -> Mutant:
    """A solution cell written anew."""
    return Mutant(name, caught_by, what, source=source, cell=cell)


TODO_1 = (
    patched("t1_all_fields", "todo1_fields", "every field of the workload", (FIELDS, "key_fields = sorted(workload)")),
    patched(
        "t1_gate_fields",
        "todo1_fields",
        "the four fields of chapter 4, written down",
        (FIELDS, "key_fields = ['device', 'dtype', 'dynamic_shape', 'seq_len'] if log.fields else []"),
    ),
    patched(
        "t1_present_fields",
        "todo1_fields",
        "only fields that the workload has",
        (FIELDS, "key_fields = sorted(log.fields & set(workload))"),
    ),
    patched("t1_unsorted_fields", "todo1_record", "a set of fields", (FIELDS, "key_fields = set(log.fields)")),
    patched(
        "t1_reverse_fields", "todo1_record", "not in order", (FIELDS, "key_fields = sorted(log.fields, reverse=True)")
    ),
    patched(
        "t1_reads_nothing",
        "todo1_record",
        "the checks read the workload, not the log",
        (CHOICE, CHOICE.replace("log", "workload")),
    ),
    patched(
        "t1_required_fields_only",
        "todo1_record",
        "only what backends require by name",
        (FIELDS, "key_fields = sorted({field for b in backends for field in b.get('requires', {})})"),
    ),
    patched(
        "t1_extra_read",
        "todo1_fields",
        "reads request_id itself, through the log",
        (LOG, LOG + "\n    log.get('request_id')"),
    ),
    patched(
        "t1_read_without_groups",
        "todo1_plain",
        "asks for attention once before anything",
        (LOG, LOG + "\n    dispatch_candidate({'pattern': 'attention'}, log, backends)"),
    ),
    patched("t1_no_order", "todo1_order", "groups first, then the rest", (ORDER, "segments = segments + []")),
    patched(
        "t1_by_first_node",
        "todo1_order",
        "by the place of the first node",
        (ORDER, f"segments = sorted(segments, key=lambda segment: {FIRST_NODE})"),
    ),
    patched(
        "t1_plain_first",
        "todo1_order",
        "plain nodes before all groups",
        (ORDER, "segments = sorted(segments, key=lambda segment: segment['pattern'] is not None)"),
    ),
    patched(
        "t1_all_matches",
        "todo1_groups",
        "takes every match as a group",
        (
            SELECTED,
            "position = {node['id']: i for i, node in enumerate(graph['nodes'])}\n"
            "    selected = {'refused': [], 'groups': [{'pattern': m['pattern'], "
            "'nodes': sorted(m['map'].values(), key=position.get)} for m in find_matches(graph)]}",
        ),
        (ORDER, "segments = segments + []"),
    ),
    patched(
        "t1_no_refused",
        "todo1_groups",
        "forgets what was refused",
        (REFUSED, REFUSED.replace("selected['refused']", "[]")),
    ),
    patched(
        "t1_refused_names",
        "todo1_groups",
        "only the names of what was refused",
        (REFUSED, REFUSED.replace("selected['refused']", "[one['pattern'] for one in selected['refused']]")),
    ),
    patched(
        "t1_one_pattern",
        "todo1_order",
        "only attention is looked for",
        (SELECTED, SELECTED.replace("PRIORITY", "['attention']")),
    ),
    patched("t1_inputs_too", "todo1_record", "inputs are segments", (PLAIN_IF, "if node['id'] not in grouped:")),
    patched("t1_no_plain", "todo1_plain", "forgets the other nodes", (PLAIN_IF, "if False:")),
    patched(
        "t1_plain_twice", "todo1_record", "grouped nodes again", (PLAIN_IF, "if node['role'] != 'input':"), (ORDER, "")
    ),
    patched(
        "t1_plain_fallback",
        "todo1_plain",
        "plain nodes are called fallbacks",
        (PLAIN, PLAIN.replace("'plain'", "'fallback'")),
    ),
    patched(
        "t1_plain_role", "todo1_plain", "a plain node's role as pattern", (PLAIN, PLAIN.replace("None", "node['role']"))
    ),
    patched(
        "t1_plain_merged",
        "todo1_plain",
        "all plain nodes in one segment",
        (
            ORDER,
            "rest = [s for s in segments if s['pattern'] is None]\n    segments = run_order(graph, [s for s in segments if s['pattern']])\n"
            "    segments = ([dict(rest[0], nodes=[n for s in rest for n in s['nodes']])] if rest else []) + segments",
        ),
    ),
    patched(
        "t1_fallback_is_plain",
        "todo1_paths",
        "groups without backend lose their reasons",
        (
            "'decision': choice['decision'], 'rejected': choice['rejected_backends'],",
            "'decision': choice['decision'] if choice['decision'] == 'optimized' else 'plain', 'rejected': choice['rejected_backends'],",
        ),
    ),
    patched(
        "t1_fallback_dropped",
        "todo1_paths",
        "groups without backend become plain nodes",
        (CHOICE, CHOICE + "\n        if choice['decision'] == 'fallback':\n            continue"),
    ),
    patched(
        "t1_no_reasons_for_winner",
        "todo1_paths",
        "reasons only when nothing works",
        (
            "'rejected': choice['rejected_backends'],",
            "'rejected': choice['rejected_backends'] if choice['decision'] == 'fallback' else {},",
        ),
    ),
    patched(
        "t1_first_backend",
        "todo1_paths",
        "takes the first backend",
        ("'path': choice['execution_path'],", "'path': backends[0]['name'] if backends else 'eager',"),
    ),
    patched(
        "t1_drops_request",
        "todo1_pure",
        "removes a field of the caller's workload",
        (LOG, LOG + "\n    workload.pop('seq_len', None)"),
    ),
)

TODO_2 = (
    patched("t2_no_cache", "todo2_hit", "never looks", (STATUS, "status = 'miss'")),
    patched(
        "t2_always_hit",
        "todo2_hit",
        "says hit after filling",
        (STATUS, "fresh = key not in plan_cache\n    status = 'hit'"),
        ("if status == 'miss':", "if fresh:"),
    ),
    patched(
        "t2_never_stores",
        "todo2_hit",
        "forgets to store",
        (MISS, "    report = plan_cache.get(key) or build(workload)\n"),
    ),
    patched(
        "t2_builds_always",
        "todo2_hit",
        "builds on a hit too",
        (MISS, "    report = plan_cache[key] = build(workload)\n"),
    ),
    patched("t2_builds_twice", "todo2_hit", "builds twice on a miss", (STORE, STORE + "\n        build(workload)")),
    patched("t2_key_dtype", "todo2_stale", "dtype alone", (KEY, "key = workload.get('dtype')")),
    patched("t2_key_one_plan", "todo2_stale", "one plan for everything", (KEY, "key = 'plan'")),
    patched(
        "t2_key_drops_last",
        "todo2_stale",
        "one field is missing",
        (KEY, KEY.replace("sorted(plan_key_fields)", "sorted(plan_key_fields)[:-1]")),
    ),
    patched(
        "t2_key_drops_first",
        "todo2_stale",
        "another field is missing",
        (KEY, KEY.replace("sorted(plan_key_fields)", "sorted(plan_key_fields)[1:]")),
    ),
    patched(
        "t2_key_gate_fields",
        "todo2_stale",
        "the fields of chapter 4 instead of the list",
        (KEY, KEY.replace("sorted(plan_key_fields)", "('device', 'dtype', 'dynamic_shape', 'seq_len')")),
    ),
    patched(
        "t2_key_lengths",
        "todo2_stale",
        "lists count by their length",
        (
            KEY,
            "key = tuple((f, len(v) if isinstance(v := workload.get(f), list) else v) for f in sorted(plan_key_fields))",
        ),
    ),
    patched(
        "t2_key_hash_of_product",
        "todo2_stale",
        "lists count by their sum",
        (
            KEY,
            "key = tuple((f, sum(v) if isinstance(v := workload.get(f), list) else v) for f in sorted(plan_key_fields))",
        ),
    ),
    patched(
        "t2_key_unfrozen",
        "todo2_hit",
        "lists in the key",
        (KEY, KEY.replace("frozen(workload.get(field))", "workload.get(field)")),
    ),
    patched(
        "t2_key_strict",
        "todo2_stale",
        "KeyError on a missing field",
        (KEY, KEY.replace("workload.get(field)", "workload[field]")),
    ),
    patched(
        "t2_key_zero_default",
        "todo2_stale",
        "a missing field counts as 0.0",
        (KEY, KEY.replace("workload.get(field)", "workload.get(field) or 0.0")),
    ),
    patched(
        "t2_key_whole_workload", "todo2_narrow", "everything in the key", (KEY, "key = repr(sorted(workload.items()))")
    ),
    patched(
        "t2_key_request_id",
        "todo2_narrow",
        "request_id too",
        (KEY, KEY.replace("sorted(plan_key_fields)", "sorted([*plan_key_fields, 'request_id'])")),
    ),
    patched(
        "t2_key_request",
        "todo2_request",
        "the request too",
        (KEY, KEY.replace("sorted(plan_key_fields)", "sorted([*plan_key_fields, 'request'])")),
    ),
    patched(
        "t2_key_values",
        "todo2_names",
        "values without names",
        (KEY, KEY.replace("(field, frozen(workload.get(field)))", "frozen(workload.get(field))")),
    ),
    patched(
        "t2_key_order",
        "todo2_names",
        "in the order of the list",
        (KEY, KEY.replace("sorted(plan_key_fields)", "plan_key_fields")),
    ),
    patched(
        "t2_flat_shape",
        "todo2_names",
        "nested lists are flattened",
        (
            KEY,
            "flat = lambda v: tuple(x for i in v for x in flat(i)) if isinstance(v, list) else (v,)\n"
            "    key = tuple((f, flat(workload.get(f))) for f in sorted(plan_key_fields))",
        ),
    ),
    patched(
        "t2_caches_path",
        "todo2_request",
        "stores the chosen path",
        (MISS, "    if status == 'hit':\n        return plan_cache[key], status\n    report = build(workload)\n"),
        ("    path = report", "    plan_cache[key] = report['available'][0]\n    path = report"),
    ),
    patched("t2_ignores_request", "todo2_request", "always the first path", (PATH, "path = report['available'][0]")),
    patched(
        "t2_silent_fallback",
        "todo2_refuse",
        "an impossible request takes the best path",
        (PATH, PATH + "\n    path = path if path in report['available'] else report['available'][0]"),
    ),
    patched(
        "t2_silent_eager",
        "todo2_refuse",
        "an impossible request takes eager",
        (RAISE, "return 'eager', status"),
    ),
    patched("t2_unchecked_request", "todo2_refuse", "the request is obeyed unchecked", (RAISE, "pass")),
    patched(
        "t2_no_reasons",
        "todo2_refuse",
        "raises without reasons",
        (RAISE, "raise RuntimeError(f'{request} is not available')"),
    ),
    patched(
        "t2_first_reason",
        "todo2_refuse",
        "only the first reason",
        (RAISE, RAISE.replace("', '.join(reasons)", "reasons[0]")),
    ),
    patched(
        "t2_no_name",
        "todo2_refuse",
        "does not say what was asked for",
        (RAISE, "raise RuntimeError(', '.join(reasons))"),
    ),
    patched(
        "t2_value_error", "todo2_refuse", "another exception", (RAISE, RAISE.replace("RuntimeError", "ValueError"))
    ),
    patched(
        "t2_unknown_key_error",
        "todo2_refuse",
        "KeyError for an unknown path",
        (REASONS, "reasons = report['rejected'][request]"),
    ),
    patched(
        "t2_stores_last",
        "todo2_after",
        "stores only after the path was chosen",
        (MISS, "    report = plan_cache[key] if status == 'hit' else build(workload)\n"),
        (RAISE, RAISE + "\n    plan_cache[key] = report"),
    ),
    patched(
        "t2_stores_failures",
        "todo2_after",
        "remembers that build failed",
        (
            STORE,
            "try:\n            plan_cache[key] = build(workload)\n        except ValueError:\n"
            "            plan_cache[key] = {'available': ['eager'], 'rejected': {}}",
        ),
    ),
    patched(
        "t2_pops_request",
        "todo2_request",
        "takes the request out of the workload",
        (REQUEST, "request = workload.pop('request', 'auto')"),
    ),
    patched(
        "t2_list", "todo2_hit", "a list instead of a pair", ("    return path, status", "    return [path, status]")
    ),
)

TODO_3 = (
    patched(
        "t3_planned_seen",
        "todo3_partial",
        "seen is enough",
        (VERDICT, "verdict = 'unproven' if not observed else 'confirmed' if planned in observed else 'fell_back'"),
    ),
    patched(
        "t3_absence_is_fallback",
        "todo3_verdicts",
        "nothing seen is a fallback",
        (VERDICT, "verdict = 'confirmed' if observed and not others else 'fell_back'"),
    ),
    patched(
        "t3_absence_is_fine",
        "todo3_verdicts",
        "nothing seen is fine",
        (VERDICT, "verdict = 'fell_back' if others else 'confirmed'"),
    ),
    patched(
        "t3_no_fallback",
        "todo3_verdicts",
        "anything seen confirms",
        (VERDICT, "verdict = 'confirmed' if observed else 'unproven'"),
    ),
    patched(
        "t3_fallback_unproven",
        "todo3_verdicts",
        "another path is unproven",
        (VERDICT, "verdict = 'confirmed' if observed and not others else 'unproven'"),
    ),
    patched(
        "t3_partial_unproven",
        "todo3_partial",
        "both seen is unproven",
        (VERDICT, VERDICT + "\n        verdict = 'unproven' if others and planned in observed else verdict"),
    ),
    patched("t3_zero_counts", "todo3_unproven", "a count of 0 counts", (NAMES, "list(seen or {})")),
    patched("t3_many_counts", "todo3_verdicts", "needs more than one call", (NAMES, NAMES.replace("> 0", "> 1"))),
    patched("t3_none_breaks", "todo3_unproven", "None is no dict", (NAMES, NAMES.replace("(seen or {})", "seen"))),
    patched(
        "t3_none_confirms",
        "todo3_unproven",
        "no evidence, no objection",
        (VERDICT, VERDICT + "\n        verdict = 'confirmed' if seen is None else verdict"),
    ),
    patched("t3_no_padding", "todo3_unproven", "drops segments without evidence", (PADDED, "")),
    patched(
        "t3_all_marks",
        "todo3_signs",
        "needs every signature",
        (
            OBSERVED,
            OBSERVED.replace(
                "any(mark in name for mark in marks for name in names)",
                "all(any(mark in name for name in names) for mark in marks)",
            ),
        ),
    ),
    patched(
        "t3_equal_names",
        "todo3_verdicts",
        "the whole name",
        (OBSERVED, OBSERVED.replace("mark in name for", "mark == name for")),
    ),
    patched(
        "t3_prefix",
        "todo3_verdicts",
        "the beginning of the name",
        (OBSERVED, OBSERVED.replace("mark in name for", "name.startswith(mark) for")),
    ),
    patched(
        "t3_reversed_in",
        "todo3_verdicts",
        "the name in the signature",
        (OBSERVED, OBSERVED.replace("mark in name for", "name in mark for")),
    ),
    patched(
        "t3_both_ways",
        "todo3_signs",
        "either in the other",
        (OBSERVED, OBSERVED.replace("mark in name for", "(mark in name or name in mark) for")),
    ),
    patched("t3_first_path", "todo3_partial", "stops at the first path", (OBSERVED, OBSERVED + "[:1]")),
    patched("t3_sorted_observed", "todo3_same", "observed by name", (OBSERVED, f"sorted({OBSERVED})")),
    patched(
        "t3_planned_first",
        "todo3_partial",
        "observed with the planned one first",
        (OBSERVED, f"sorted({OBSERVED}, key=lambda path: path != planned)"),
    ),
    patched(
        "t3_by_name",
        "todo3_same",
        "other names are other paths",
        (OTHERS, "others = [path for path in observed if path != planned]"),
    ),
    patched(
        "t3_overlap_is_same",
        "todo3_same",
        "same if eager was seen",
        (OTHERS, OTHERS.replace("if signatures", "if path != 'eager' and signatures")),
    ),
    patched(
        "t3_hides_twins",
        "todo3_same",
        "leaves the twin out of observed",
        (OTHERS, OTHERS + "\n        observed = [p for p in observed if p == planned or p in others]"),
    ),
    patched(
        "t3_unknown_key_error",
        "todo3_edges",
        "a path without signature breaks",
        (OTHERS, OTHERS.replace("signatures.get(planned)", "signatures[planned]")),
    ),
    patched(
        "t3_unknown_unproven",
        "todo3_edges",
        "a path without signature is unproven",
        (VERDICT, VERDICT + "\n        verdict = 'unproven' if planned not in signatures else verdict"),
    ),
    patched("t3_too_long", "todo3_edges", "ignores evidence that is left over", (TOO_LONG, "if False:")),
    patched("t3_length_strict", "todo3_unproven", "too short raises as well", (TOO_LONG, TOO_LONG.replace(">", "!="))),
    patched(
        "t3_pads_input",
        "todo3_pure",
        "fills up the caller's evidence",
        (COPY, COPY.replace("list(evidence['segments'])", "evidence['segments']")),
    ),
    patched("t3_words", "todo3_verdicts", "other words", (VERDICT, VERDICT.replace("fell_back", "fallback"))),
    patched(
        "t3_observed_names",
        "todo3_verdicts",
        "operators instead of paths",
        ("'observed': observed,", "'observed': names,"),
    ),
    patched(
        "t3_global_evidence",
        "todo3_verdicts",
        "all segments' operators together",
        (NAMES, "[name for one in operators for name, count in (one or {}).items() if count > 0]"),
    ),
)

MUTANTS = TODO_1 + TODO_2 + TODO_3

VARIANTS = (
    rewritten(
        "v1_two_logs",
        "",
        "a log for each group, helper function, ready-made order",
        "todo1",
        """\
def build_plan(graph, backends, workload):
    def part(nodes, pattern, path, decision, rejected):
        return dict(nodes=list(nodes), pattern=pattern, path=path, decision=decision, rejected=rejected)

    chosen = select_groups(graph, find_matches(graph), PRIORITY)
    parts, fields, taken = [], set(), []
    for group in chosen['groups']:
        log = FieldLog(workload)
        d = dispatch_candidate({'pattern': group['pattern'], 'start': 0, 'end': 0, 'ops': []}, log, backends)
        fields.update(log.fields)
        parts.append(part(group['nodes'], group['pattern'], d['execution_path'], d['decision'], d['rejected_backends']))
        taken += group['nodes']
    parts += [
        part([n['id']], None, 'eager', 'plain', {}) for n in graph['nodes'] if not (n['role'] == 'input' or n['id'] in taken)
    ]
    return {'key_fields': sorted(fields), 'refused': list(chosen['refused']), 'segments': run_order(graph, parts)}
""",
    ),
    rewritten(
        "v2_json_key",
        "",
        "a JSON text as key, early returns",
        "todo2",
        """\
def dispatch(plan_cache, plan_key_fields, workload, build):
    key = json.dumps({field: workload.get(field) for field in plan_key_fields}, sort_keys=True)
    status = 'hit'
    if key not in plan_cache:
        status = 'miss'
        plan_cache[key] = build(dict(workload))
    available, rejected = plan_cache[key]['available'], plan_cache[key]['rejected']
    wanted = workload['request'] if 'request' in workload else 'auto'
    if wanted == 'auto':
        return (available[0], status)
    if wanted in available:
        return (wanted, status)
    why = rejected[wanted] if wanted in rejected else ['unknown_path']
    raise RuntimeError('cannot run ' + wanted + ' because ' + '; '.join(why))
""",
    ),
    rewritten(
        "v3_loops",
        "",
        "loops instead of comprehensions",
        "todo3",
        """\
def audit(plan, evidence):
    segments, seen_all = plan['segments'], evidence['segments']
    if len(seen_all) > len(segments):
        raise ValueError('too much evidence')
    answer = []
    for i in range(len(segments)):
        seen = seen_all[i] if i < len(seen_all) else None
        observed = []
        for path in evidence['signatures']:
            for mark in evidence['signatures'][path]:
                if seen and any(mark in name and seen[name] > 0 for name in seen) and path not in observed:
                    observed.append(path)
        planned = segments[i]['path']
        mine = evidence['signatures'].get(planned)
        if observed == []:
            verdict = 'unproven'
        elif all(evidence['signatures'][path] == mine for path in observed):
            verdict = 'confirmed'
        else:
            verdict = 'fell_back'
        answer.append({'nodes': segments[i]['nodes'], 'planned': planned, 'observed': observed, 'verdict': verdict})
    return answer
""",
    ),
)
