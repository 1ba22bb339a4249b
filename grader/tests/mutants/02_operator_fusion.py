"""Wrong and right ways to solve chapter 2."""

from __future__ import annotations

from grader.tests.mutants.framework import Mutant

_UNFUSED_READS = 'traffic += sum(sizes[tensor] for tensor in set(op["in"]))  # 每个不同的输入读一次'
_UNFUSED_WRITE = 'traffic += sizes[op["out"]]  # 写一次'
_UNFUSED_RETURN = 'return {"bytes": traffic, "launches": len(ops)}'
_EXTERNAL = 'external = {tensor for op in inside for tensor in op["in"]} - made  # 每个只读一次'
_NEEDED = 'needed = {tensor for op in outside for tensor in op["in"]} | set(live_out)'
_WRITTEN = "written = made & needed  # 逃逸的和活跃的要写"
_OUTSIDE = '        traffic += sum(sizes[tensor] for tensor in set(op["in"])) + sizes[op["out"]]\n'
_FUSED_RETURN = 'return {"bytes": traffic, "launches": len(outside) + 1}'
_FORMULA = "return (fused_fixed - eager_fixed) / (eager_slope - fused_slope)"


def _change(name: str, caught_by: str, what: str, old: str, new: str) -> Mutant:
    return Mutant(name, caught_by, what, patch=((old, new),))


MUTANTS = (
    # TODO 1
    _change("t1_no_reads", "todo1_chain", "counts only writes", _UNFUSED_READS, "pass"),
    _change("t1_no_writes", "todo1_chain", "counts only reads", _UNFUSED_WRITE, ""),
    _change(
        "t1_each_tensor_once",
        "todo1_chain",
        "every tensor of the program once",
        _UNFUSED_RETURN,
        'traffic = sum(sizes[t] for t in {t for op in ops for t in [*op["in"], op["out"]]})\n    ' + _UNFUSED_RETURN,
    ),
    _change(
        "t1_all_sizes",
        "todo1_chain",
        "sums all sizes, used or not",
        _UNFUSED_RETURN,
        'return {"bytes": sum(sizes.values()), "launches": len(ops)}',
    ),
    _change(
        "t1_intermediates_free",
        "todo1_chain",
        "intermediates stay in registers although nothing is fused",
        _UNFUSED_READS,
        'traffic += sum(sizes[t] for t in set(op["in"]) - {other["out"] for other in ops})',
    ),
    _change(
        "t1_first_input_only",
        "todo1_chain",
        "reads the first input only",
        _UNFUSED_READS,
        'traffic += sum(sizes[t] for t in op["in"][:1])',
    ),
    _change(
        "t1_launches_are_tensors",
        "todo1_chain",
        "a launch per tensor",
        '"launches": len(ops)',
        '"launches": len(sizes)',
    ),
    _change(
        "t1_one_launch",
        "todo1_chain",
        "one launch for the program",
        '"launches": len(ops)',
        '"launches": min(1, len(ops))',
    ),
    _change(
        "t1_write_per_input",
        "todo1_chain",
        "writes the output once per input",
        _UNFUSED_WRITE,
        'traffic += sizes[op["out"]] * len(set(op["in"]))',
    ),
    Mutant(
        "t1_reads_once_in_all",
        "todo1_shared",
        "remembers what an earlier op has read",
        (
            ("    traffic = 0\n    for op in ops:\n", "    traffic, seen = 0, set()\n    for op in ops:\n"),
            (
                _UNFUSED_READS,
                'new = set(op["in"]) - seen\n        seen |= new\n        traffic += sum(sizes[t] for t in new)',
            ),
        ),
    ),
    _change(
        "t1_duplicates_read_twice",
        "todo1_duplicate",
        "x * x reads x twice",
        _UNFUSED_READS,
        'traffic += sum(sizes[t] for t in op["in"])',
    ),
    _change(
        "t1_unique_sizes",
        "todo1_duplicate",
        "two inputs of the same size count once",
        _UNFUSED_READS,
        'traffic += sum({sizes[tensor] for tensor in op["in"]})',
    ),
    _change(
        "t1_empty_fails",
        "todo1_edges",
        "an empty program raises",
        "    traffic = 0\n",
        '    traffic = 0 * sizes[ops[0]["out"]]\n',
    ),
    _change(
        "t1_constant_free",
        "todo1_edges",
        "an op without inputs costs nothing",
        _UNFUSED_WRITE,
        'traffic += sizes[op["out"]] if op["in"] else 0',
    ),
    _change(
        "t1_sorts_inputs",
        "todo1_edges",
        "sorts the caller's inputs",
        _UNFUSED_READS,
        'op["in"].sort()\n        ' + _UNFUSED_READS,
    ),
    # TODO 2
    _change(
        "t2_intermediates_written",
        "todo2_intermediate",
        "writes everything made in the group",
        _WRITTEN,
        "written = made",
    ),
    _change("t2_intermediates_read", "todo2_intermediate", "reads what the group itself made", " - made  #", "  #"),
    _change("t2_nothing_written", "todo2_intermediate", "forgets the output of the group", _WRITTEN, "written = set()"),
    _change(
        "t2_no_reads",
        "todo2_intermediate",
        "forgets to read the inputs",
        "sum(sizes[tensor] for tensor in external) + ",
        "",
    ),
    _change(
        "t2_launches_unchanged",
        "todo2_intermediate",
        "as many launches as before",
        '"launches": len(outside) + 1',
        '"launches": len(ops)',
    ),
    _change("t2_live_out_ignored", "todo2_intermediate", "writes only what ops outside use", " | set(live_out)", ""),
    _change(
        "t2_read_per_op",
        "todo2_external",
        "every op of the group reads for itself",
        "traffic = sum(sizes[tensor] for tensor in external)",
        'traffic = sum(sizes[t] for op in inside for t in set(op["in"]) - made)',
    ),
    _change(
        "t2_read_per_use",
        "todo2_external",
        "every use in the group is a read",
        "traffic = sum(sizes[tensor] for tensor in external)",
        'traffic = sum(sizes[t] for op in inside for t in op["in"] if t not in made)',
    ),
    _change(
        "t2_unique_sizes",
        "todo2_external",
        "two inputs of the same size count once",
        "traffic = sum(sizes[tensor] for tensor in external)",
        "traffic = sum({sizes[tensor] for tensor in external})",
    ),
    _change("t2_escape_not_written", "todo2_escape", "only live-out is written", _NEEDED, "needed = set(live_out)"),
    _change(
        "t2_next_op_only",
        "todo2_escape",
        "asks only the op right behind the group",
        "for op in outside for tensor",
        "for op in outside[:1] for tensor",
    ),
    _change(
        "t2_last_output_only",
        "todo2_escape",
        "writes only the output of the last op",
        _WRITTEN,
        'written = made & needed & {ops[max(group)]["out"]}',
    ),
    Mutant(
        "t2_write_per_user",
        "todo2_escape",
        "writes an escaping tensor once per user",
        (
            (
                "sum(sizes[tensor] for tensor in written)",
                'sum(sizes[t] * max(1, sum(t in op["in"] for op in outside)) for t in written)',
            ),
        ),
    ),
    _change(
        "t2_escape_free_to_read",
        "todo2_escape",
        "ops outside get what the group made for nothing",
        '        traffic += sum(sizes[tensor] for tensor in set(op["in"])) + sizes',
        '        traffic += sum(sizes[tensor] for tensor in set(op["in"]) - made) + sizes',
    ),
    _change(
        "t2_all_live_out_written",
        "todo2_live_out",
        "writes all of live_out, inputs too",
        _WRITTEN,
        "written = (made & needed) | set(live_out)",
    ),
    _change(
        "t2_escape_and_live_twice",
        "todo2_live_out",
        "escaping and live is written twice",
        "sum(sizes[tensor] for tensor in written)",
        'sum(sizes[t] * ((t in live_out) + any(t in op["in"] for op in outside)) for t in written)',
    ),
    _change(
        "t2_live_only_if_last",
        "todo2_live_out",
        "live_out counts only for the last op",
        "| set(live_out)",
        '| ({ops[-1]["out"]} & set(live_out))',
    ),
    _change("t2_rest_forgotten", "todo2_rest", "counts the group only", _OUTSIDE, "        pass\n"),
    _change(
        "t2_rest_shares_reads",
        "todo2_rest",
        "ops outside do not read again what the group has read",
        _OUTSIDE,
        _OUTSIDE.replace('set(op["in"])', 'set(op["in"]) - external'),
    ),
    _change(
        "t2_rest_duplicates",
        "todo2_rest",
        "ops outside read duplicates twice",
        _OUTSIDE,
        _OUTSIDE.replace('set(op["in"])', 'op["in"]'),
    ),
    Mutant(
        "t2_contiguous",
        "todo2_rest",
        "takes everything between first and last",
        (
            (
                "inside = [ops[i] for i in set(group)]",
                "group = range(min(group), max(group) + 1)\n    inside = [ops[i] for i in group]",
            ),
        ),
    ),
    _change(
        "t2_slice_of_sorted",
        "todo2_rest",
        "takes group for (first, last) in order",
        "inside = [ops[i] for i in set(group)]",
        "inside = [ops[i] for i in range(len(ops)) if i in group and i >= group[0]]",
    ),
    _change(
        "t2_launches_minus_group",
        "todo2_rest",
        "forgets the launch of the group",
        '"launches": len(outside) + 1',
        '"launches": max(1, len(outside))',
    ),
    _change(
        "t2_one_launch",
        "todo2_rest",
        "one launch for the whole program",
        '"launches": len(outside) + 1',
        '"launches": 1',
    ),
    _change(
        "t2_sorts_group",
        "todo2_rest",
        "sorts the caller's group",
        "inside = [ops[i]",
        "group.sort()\n    inside = [ops[i]",
    ),
    _change(
        "t2_output_always_free_if_alone",
        "todo2_single",
        "a group of one writes nothing",
        _WRITTEN,
        "written = made & needed if len(inside) > 1 else set()",
    ),
    # TODO 3
    _change(
        "t3_swapped",
        "todo3_formula",
        "takes fused for eager",
        "(eager_fixed, eager_slope), (fused_fixed, fused_slope) = eager, fused",
        "(eager_fixed, eager_slope), (fused_fixed, fused_slope) = fused, eager",
    ),
    _change(
        "t3_sign",
        "todo3_formula",
        "numerator the wrong way round",
        "(fused_fixed - eager_fixed) /",
        "(eager_fixed - fused_fixed) /",
    ),
    _change(
        "t3_inverted",
        "todo3_formula",
        "slope over fixed",
        _FORMULA,
        "return (eager_slope - fused_slope) / (fused_fixed - eager_fixed)",
    ),
    _change(
        "t3_rounded_up",
        "todo3_formula",
        "rounds up",
        _FORMULA,
        "return -int(-(fused_fixed - eager_fixed) // (eager_slope - fused_slope))",
    ),
    _change(
        "t3_truncated",
        "todo3_formula",
        "cuts off",
        _FORMULA,
        "return int((fused_fixed - eager_fixed) / (eager_slope - fused_slope))",
    ),
    _change(
        "t3_sum_of_slopes",
        "todo3_formula",
        "adds the slopes",
        "(eager_slope - fused_slope)",
        "(eager_slope + fused_slope)",
    ),
    _change(
        "t3_own_fixed_only",
        "todo3_formula",
        "ignores eager's fixed cost",
        "(fused_fixed - eager_fixed) /",
        "fused_fixed /",
    ),
    _change(
        "t3_per_cent",
        "todo3_formula",
        "rounds to whole tens of microseconds",
        "(fused_fixed - eager_fixed) /",
        "round(fused_fixed - eager_fixed, -1) /",
    ),
    _change(
        "t3_parallel_divides",
        "todo3_none",
        "equal slopes divide by zero",
        "if fused_slope >= eager_slope:",
        "if fused_slope > eager_slope:",
    ),
    _change(
        "t3_parallel_infinite",
        "todo3_none",
        "infinity in place of None",
        "        return None\n",
        '        return float("inf")\n',
    ),
    _change(
        "t3_no_slope_check",
        "todo3_none",
        "a steeper line gives a negative number",
        "if fused_slope >= eager_slope:",
        "if fused_slope == eager_slope:",
    ),
    _change("t3_steeper_zero", "todo3_none", "a steeper line gives 0", "        return None\n", "        return 0\n"),
    Mutant(
        "t3_start_first",
        "todo3_none",
        "looks at the start before the slope",
        (
            (
                "    if fused_slope >= eager_slope:",
                "    if fused_fixed <= eager_fixed:\n        return 0\n    if fused_slope >= eager_slope:",
            ),
        ),
    ),
    _change(
        "t3_negative", "todo3_zero", "a better start gives a negative number", "        return 0\n", "        pass\n"
    ),
    _change("t3_better_none", "todo3_zero", "a better start gives None", "        return 0\n", "        return None\n"),
    _change("t3_better_one", "todo3_zero", "starts at one token", "        return 0\n", "        return 1\n"),
    _change(
        "t3_equal_start_none",
        "todo3_zero",
        "equal starts give None",
        "    if fused_fixed <= eager_fixed:",
        "    if fused_fixed == eager_fixed:\n        return None\n    if fused_fixed <= eager_fixed:",
    ),
)

VARIANTS = (
    Mutant(
        "v1_loops",
        "",
        "plain loops",
        source="""def unfused_cost(program, tensor_bytes):
    total = launches = 0
    for step in program:
        already = []
        for name in step["in"]:
            if name in already:
                continue
            already.append(name)
            total = total + tensor_bytes[name]
        total = total + tensor_bytes[step["out"]]
        launches += 1
    return dict(launches=launches, bytes=total)
""",
        cell="todo1",
    ),
    Mutant(
        "v1_one_line",
        "",
        "one expression with dict.fromkeys",
        source="""def unfused_cost(ops, sizes):
    moved = [tensor for op in ops for tensor in [*dict.fromkeys(op["in"]), op["out"]]]
    return {"bytes": sum(map(sizes.__getitem__, moved)), "launches": len(ops)}
""",
        cell="todo1",
    ),
    Mutant(
        "v2_calls_todo1",
        "",
        "counts the rest with unfused_cost",
        source="""def fused_cost(ops, group, sizes, live_out):
    chosen = frozenset(group)
    rest = [op for i, op in enumerate(ops) if i not in chosen]
    cost = unfused_cost(rest, sizes)
    produced = [ops[i]["out"] for i in sorted(chosen)]
    read = []
    for i in chosen:
        for t in ops[i]["in"]:
            if t not in produced and t not in read:
                read.append(t)
    for t in produced:
        if t in live_out or any(t in op["in"] for op in rest):
            read.append(t)
    return {"bytes": cost["bytes"] + sum(sizes[t] for t in read), "launches": cost["launches"] + 1}
""",
        cell="todo2",
    ),
    Mutant(
        "v2_subtracts",
        "",
        "starts from the unfused cost and takes off what fusion saves",
        source="""def fused_cost(ops, group, sizes, live_out):
    base = unfused_cost(ops, sizes)
    group = set(group)
    users = {}
    for i, op in enumerate(ops):
        for t in set(op["in"]):
            users.setdefault(t, []).append(i)
    saved = 0
    made = {ops[i]["out"] for i in group}
    for t, who in users.items():
        inner = sum(i in group for i in who)
        saved += sizes[t] * (inner if t in made else max(0, inner - 1))
    for t in made:
        if t not in set(live_out) and all(i in group for i in users.get(t, [])):
            saved += sizes[t]
    return {"bytes": base["bytes"] - saved, "launches": base["launches"] - len(group) + 1}
""",
        cell="todo2",
    ),
    Mutant(
        "v3_maximum",
        "",
        "max with zero after the slope check, from floats",
        source="""def break_even_tokens(eager, fused):
    gain = eager[1] - fused[1]
    if gain <= 0:
        return None
    return max(0.0, (fused[0] - eager[0]) / gain)
""",
        cell="todo3",
    ),
    Mutant(
        "v3_nested",
        "",
        "one conditional expression",
        source="""def break_even_tokens(eager, fused):
    ae, be = eager
    af, bf = fused
    return None if not bf < be else 0 if not af > ae else (ae - af) / (bf - be)
""",
        cell="todo3",
    ),
)
