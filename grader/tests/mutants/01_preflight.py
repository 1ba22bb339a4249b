"""Wrong and right ways to solve chapter 1."""

from __future__ import annotations

from grader.tests.mutants.framework import Mutant

_RULES = """def classify_environment(probe):
    cuda, comp, cxx = (bool(probe.get(key, False)) for key in ("cuda", "compile", "cxx"))
{body}
"""
_BLOCKED = '    return {"tier": "cpu_eager", "blocked": blocked}'


def _classify(body: str) -> str:
    indented = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return _RULES.format(body=indented)


_ALL_REASONS = """
tier = "gpu" if cuda and comp else "cpu_compile" if comp and cxx else "cpu_eager"
pairs = (("no_cuda", cuda), ("no_compile", comp), ("no_cxx", cxx))
blocked = [reason for reason, present in pairs if not present]
return {"tier": tier, "blocked": [] if tier == "gpu" else blocked}
"""

_WALK = """def validate_report(report):
    found = []

    def typed(value, name):
        if name == "boolean":
            return isinstance(value, bool)
        return isinstance(value, JSON_TYPES[name]) and not isinstance(value, bool)

    def visit(value, spec, path):
        if type(spec) is tuple:
            if value is not None:
                visit(value, spec[1], path)
        elif type(spec) is dict:
            if not isinstance(value, dict):
                found.append(path)
                return
            for key in spec:
                here = path + "." + key
                if key in value:
                    visit(value[key], spec[key], here)
                else:
                    found.append(here)
        elif type(spec) is list:
            if not isinstance(value, list):
                found.append(path)
                return
            for number in range(len(value)):
                visit(value[number], spec[0], path + "[" + str(number) + "]")
        elif not typed(value, spec):
            found.append(path)

    visit(report, REPORT_SPEC, "$")
    return [path if path == "$" else path[2:] for path in found]
"""


def _walk(name: str, caught_by: str, what: str, old: str, new: str) -> Mutant:
    """A change to the walker of another style."""
    assert _WALK.count(old) == 1, (name, old)
    return Mutant(name, caught_by, what, source=_WALK.replace(old, new), cell="todo3")


MUTANTS = (
    # TODO 1
    Mutant(
        "t1_cuda_is_gpu", "todo1_gpu_tier", "gpu without torch.compile", (("if cuda and can_compile:", "if cuda:"),)
    ),
    Mutant(
        "t1_gpu_needs_cxx",
        "todo1_gpu_tier",
        "gpu asks for a C++ compiler",
        (("if cuda and can_compile:", "if cuda and can_compile and cxx:"),),
    ),
    Mutant(
        "t1_cuda_or_compile",
        "todo1_gpu_tier",
        "or in place of and: a machine with CUDA alone is gpu",
        (("if cuda and can_compile:", "if cuda or can_compile:"),),
    ),
    Mutant(
        "t1_compile_alone",
        "todo1_cpu_tiers",
        "cpu_compile without a C++ compiler",
        (("if can_compile and cxx:", "if can_compile:"),),
    ),
    Mutant(
        "t1_cxx_alone",
        "todo1_cpu_tiers",
        "cpu_compile without torch.compile",
        (("if can_compile and cxx:", "if cxx:"),),
    ),
    Mutant(
        "t1_all_reasons", "todo1_blocked", "lists reasons of higher tiers", source=_classify(_ALL_REASONS), cell="todo1"
    ),
    Mutant(
        "t1_gpu_blocked_by_cxx",
        "todo1_blocked",
        "a gpu machine is still blocked by no_cxx",
        (('return {"tier": "gpu", "blocked": []}', 'return {"tier": "gpu", "blocked": [] if cxx else ["no_cxx"]}'),),
    ),
    Mutant(
        "t1_first_reason_only", "todo1_blocked", "elif keeps one reason", (("    if not cxx:", "    elif not cxx:"),)
    ),
    Mutant(
        "t1_order",
        "todo1_blocked",
        "reasons in another order",
        ((_BLOCKED, _BLOCKED.replace("blocked}", "blocked[::-1]}")),),
    ),
    Mutant(
        "t1_nothing_blocked",
        "todo1_blocked",
        "cpu_compile is not told what is missing",
        (('"blocked": ["no_cuda"]}', '"blocked": []}'),),
    ),
    Mutant(
        "t1_cuda_skips_cxx",
        "todo1_blocked",
        "with CUDA it takes gpu for the next tier of cpu_eager",
        (("    if not cxx:", "    if not cxx and not cuda:"),),
    ),
    Mutant(
        "t1_missing_key_raises",
        "todo1_input",
        "a missing key raises KeyError",
        (("bool(probe.get(key, False))", "bool(probe[key])"),),
    ),
    Mutant(
        "t1_missing_is_true",
        "todo1_input",
        "a missing key counts as present",
        (("probe.get(key, False)", "probe.get(key, True)"),),
    ),
    Mutant(
        "t1_pops",
        "todo1_input",
        "takes the keys out of the caller's dict",
        (("probe.get(key, False)", "probe.pop(key, False)"),),
    ),
    Mutant(
        "t1_version_decides",
        "todo1_input",
        "reads CUDA off the version text",
        (
            ("    blocked = []", '    blocked = ["no_cuda"] if "+cpu" in str(probe.get("torch_version")) else []'),
            (
                '"blocked": ["no_cuda"]}',
                '"blocked": ["no_cuda"] if "+cu" not in str(probe.get("torch_version")) else []}',
            ),
        ),
    ),
    Mutant(
        "t1_low_memory",
        "todo1_input",
        "no free memory lowers the tier",
        (("if can_compile and cxx:", 'if can_compile and cxx and probe.get("free_bytes", 1) != 0:'),),
    ),
    # TODO 2
    Mutant(
        "t2_floor", "todo2_rank", "rounds down", (("-(-num * len(values) // den)", "max(1, num * len(values) // den)"),)
    ),
    Mutant(
        "t2_round",
        "todo2_rank",
        "rounds to the nearest",
        (("-(-num * len(values) // den)", "max(1, round(num * len(values) / den))"),),
    ),
    Mutant(
        "t2_zero_based", "todo2_rank", "takes the rank as an index", (("[rank - 1]", "[min(rank, len(values) - 1)]"),)
    ),
    Mutant(
        "t2_always_plus_one",
        "todo2_rank",
        "adds one even if it divides",
        (("-(-num * len(values) // den)", "min(len(values), num * len(values) // den + 1)"),),
    ),
    Mutant("t2_unsorted", "todo2_rank", "does not sort", (("sorted(values)[", "list(values)["),)),
    Mutant(
        "t2_descending",
        "todo2_rank",
        "sorts from large to small",
        (("sorted(values)[", "sorted(values, reverse=True)["),),
    ),
    Mutant(
        "t2_by_magnitude", "todo2_rank", "sorts by absolute value", (("sorted(values)[", "sorted(values, key=abs)["),)
    ),
    Mutant(
        "t2_drops_duplicates",
        "todo2_rank",
        "counts equal values once",
        (("rank = ", "values = sorted(set(values))\n    rank = "),),
    ),
    Mutant(
        "t2_interpolates",
        "todo2_rank",
        "interpolates linearly",
        (
            (
                "return sorted(values)[rank - 1]",
                "ordered, at = sorted(values), (len(values) - 1) * num / den\n"
                "    low = int(at)\n"
                "    high = min(low + 1, len(values) - 1)\n"
                "    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)",
            ),
        ),
    ),
    Mutant(
        "t2_float_ratio",
        "todo2_integer",
        "ceil of a float product: 55/100 of 100 is 56",
        (("-(-num * len(values) // den)", "-int(-(num / den * len(values)) // 1)"),),
    ),
    Mutant(
        "t2_float_division",
        "todo2_integer",
        "float division loses the last digit of large integers",
        (("-(-num * len(values) // den)", "-int(-(num * len(values) / den) // 1)"),),
    ),
    Mutant(
        "t2_empty_none", "todo2_errors", "no samples gives None", (('raise ValueError("没有样本")', "return None"),)
    ),
    Mutant("t2_empty_index", "todo2_errors", "no samples raises IndexError", (("if not values:", "if False:"),)),
    Mutant("t2_nan_kept", "todo2_errors", "sorts NaN", (('raise ValueError("样本里有 NaN")', "pass"),)),
    Mutant(
        "t2_nan_first_only",
        "todo2_errors",
        "looks for NaN in the first place only",
        (("for value in values)", "for value in values[:1])"),),
    ),
    Mutant(
        "t2_nan_dropped",
        "todo2_errors",
        "drops NaN silently",
        (('raise ValueError("样本里有 NaN")', "values = [value for value in values if value == value]"),),
    ),
    Mutant(
        "t2_over_one",
        "todo2_errors",
        "a ratio above one is cut",
        (("not 0 < num <= den:", "num <= 0:"), ("[rank - 1]", "[min(rank, len(values)) - 1]")),
    ),
    Mutant(
        "t2_zero_ratio", "todo2_errors", "accepts the ratio zero", (("not 0 < num <= den:", "not 0 <= num <= den:"),)
    ),
    Mutant(
        "t2_zero_den",
        "todo2_errors",
        "den = 0 raises ZeroDivisionError",
        (("den <= 0 or not 0 < num <= den:", "not 0 < num / den <= 1:"),),
    ),
    Mutant(
        "t2_sorts_in_place",
        "todo2_pure",
        "sorts the caller's list",
        (("return sorted(values)[rank - 1]", "values.sort()\n    return values[rank - 1]"),),
    ),
    # TODO 3
    _walk(
        "t3_extra_keys",
        "todo3_good",
        "reports keys that the table does not know",
        "            for key in spec:\n",
        "            found.extend(path + '.' + key for key in value if key not in spec)\n"
        "            for key in spec:\n",
    ),
    _walk(
        "t3_int_is_no_number",
        "todo3_good",
        "refuses an integer where a number is asked",
        'if name == "boolean":',
        'if name == "number":\n            return isinstance(value, float)\n        if name == "boolean":',
    ),
    _walk(
        "t3_null_refused",
        "todo3_good",
        "null is wrong everywhere",
        "if value is not None:\n                visit",
        "if True:\n                visit",
    ),
    _walk(
        "t3_top_level_only",
        "todo3_missing",
        "looks at the top level only",
        "visit(value[key], spec[key], here)",
        "pass",
    ),
    _walk(
        "t3_first_problem",
        "todo3_missing",
        "stops at the first problem",
        "return [path if",
        "return [path if".replace("return", "found = found[:1]\n    return"),
    ),
    _walk(
        "t3_first_row", "todo3_missing", "looks at the first row only", "range(len(value))", "range(min(1, len(value)))"
    ),
    _walk("t3_one_based", "todo3_missing", "counts rows from one", "str(number)", "str(number + 1)"),
    _walk("t3_dotted_index", "todo3_missing", "writes an index as .1", '"[" + str(number) + "]"', '"." + str(number)'),
    _walk("t3_no_index", "todo3_missing", "leaves the index out", 'path + "[" + str(number) + "]"', "path"),
    _walk(
        "t3_children_of_missing",
        "todo3_missing",
        "also reports the keys inside a missing parent",
        "found.append(here)",
        "found.append(here)\n"
        "                    if isinstance(spec[key], dict):\n"
        "                        found.extend(here + '.' + inner for inner in spec[key])",
    ),
    _walk(
        "t3_key_only",
        "todo3_missing",
        "reports the last key without its path",
        'return [path if path == "$" else path[2:] for path in found]',
        "return [path.split('.')[-1] for path in found]",
    ),
    _walk(
        "t3_with_words",
        "todo3_missing",
        "puts words into the path",
        "found.append(here)",
        "found.append(here + ': missing')",
    ),
    _walk("t3_no_types", "todo3_types", "checks presence, not types", "elif not typed(value, spec):", "elif False:"),
    _walk("t3_bool_is_integer", "todo3_types", "True passes as a number", " and not isinstance(value, bool)", ""),
    _walk(
        "t3_int_is_bool",
        "todo3_types",
        "1 passes as a boolean",
        "return isinstance(value, bool)\n",
        "return isinstance(value, int)\n",
    ),
    _walk(
        "t3_integer_takes_floats",
        "todo3_types",
        "1.5 passes as an integer",
        "return isinstance(value, JSON_TYPES[name]) and",
        'return isinstance(value, (int, float) if name == "integer" else JSON_TYPES[name]) and',
    ),
    _walk(
        "t3_items_unchecked",
        "todo3_types",
        "does not look into plain lists",
        "elif type(spec) is list:",
        "elif type(spec) is list and type(spec[0]) is str:\n"
        "            if not isinstance(value, list):\n                found.append(path)\n"
        "        elif type(spec) is list:",
    ),
    _walk(
        "t3_null_rows_skipped",
        "todo3_types",
        "skips null in lists",
        "        if type(spec) is tuple:",
        "        if value is None and path.endswith(']'):\n            return\n        if type(spec) is tuple:",
    ),
    _walk(
        "t3_null_anywhere",
        "todo3_null",
        "null is fine everywhere",
        "        if type(spec) is tuple:",
        "        if value is None and '.' in path[2:]:\n            return\n        if type(spec) is tuple:",
    ),
    _walk(
        "t3_nullable_unchecked",
        "todo3_null",
        "does not look behind (None, …)",
        "                visit(value, spec[1], path)",
        "                pass",
    ),
    _walk(
        "t3_root_raises",
        "todo3_root",
        "a file that is no object raises",
        "    visit(report, REPORT_SPEC",
        "    report.keys()\n    visit(report, REPORT_SPEC",
    ),
    _walk(
        "t3_root_empty_path",
        "todo3_root",
        "reports the root as an empty path",
        'return [path if path == "$" else path[2:] for path in found]',
        "return [path[2:] for path in found]",
    ),
)

VARIANTS = (
    Mutant(
        "v1_table",
        "",
        "a table of requirements, from the top tier down",
        source="""def classify_environment(probe):
    needs = [("gpu", ["cuda", "compile"]), ("cpu_compile", ["compile", "cxx"]), ("cpu_eager", [])]
    missing = []
    for tier, keys in needs:
        if all(probe.get(k) for k in keys):
            return dict(tier=tier, blocked=["no_" + k for k in missing])
        missing = [k for k in keys if not probe.get(k)]
""",
        cell="todo1",
    ),
    Mutant(
        "v2_fraction",
        "",
        "Fraction and math.ceil",
        source="""import math as m
from fractions import Fraction


def nearest_rank(values, num, den):
    if den == 0 or len(values) == 0 or any(m.isnan(v) for v in values):
        raise ValueError("bad input")
    ratio = Fraction(num, den)
    if ratio <= 0 or ratio > 1:
        raise ValueError(ratio)
    ordered = list(values)
    ordered.sort()
    return ordered[m.ceil(ratio * len(ordered)) - 1]
""",
        cell="todo2",
    ),
    Mutant(
        "v2_loop",
        "",
        "counts up with a loop, divmod for the rank",
        source="""def nearest_rank(values, num, den):
    if not (len(values) and den > 0 and 0 < num <= den) or sum(v != v for v in values):
        raise ValueError
    whole, rest = divmod(num * len(values), den)
    rank, remaining = whole + (rest > 0), [*values]
    for _ in range(rank - 1):
        remaining.remove(min(remaining))
    return min(remaining)
""",
        cell="todo2",
    ),
    Mutant("v3_other_walker", "", "another walker, which refuses 32.0 as an integer", source=_WALK, cell="todo3"),
    Mutant(
        "v3_generator",
        "",
        "a generator, problems in another order",
        source="""def _problems(value, spec, path):
    if isinstance(spec, tuple):
        return [] if value is None else _problems(value, spec[1], path)
    if isinstance(spec, str):
        good = isinstance(value, JSON_TYPES[spec]) and (spec == "boolean" or not isinstance(value, bool))
        return [] if good else [path]
    if type(value) is not type(spec):
        return [path]
    if isinstance(spec, list):
        return [p for i, item in enumerate(value) for p in _problems(item, spec[0], f"{path}[{i}]")]
    found = []
    for key in sorted(spec, reverse=True):
        here = key if path == "$" else f"{path}.{key}"
        found += _problems(value[key], spec[key], here) if key in value else [here]
    return found


def validate_report(report):
    return _problems(report, REPORT_SPEC, "$")
""",
        cell="todo3",
    ),
)
