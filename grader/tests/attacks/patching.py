"""Attacks that replace parts of Python, of libraries or of the shell, and modules that hide others.

The first answer is wrong and counts on the patch; the second is honest, and has its 5 points although the process
around it is broken.
"""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

from grader.tests.attacks.case import MEAN, Registry, answers, hostile

case = Registry("cheat: patching", flags=("runner_patched",))
WRONG = "def relu_sum(xs):\n    return -1\n"


def cell(name: str, mechanism: str, source: str, **more: object) -> None:
    case.add(name, mechanism, 5, lambda: hostile(WRONG, cell=source), **more)


YES = "lambda *a, **k: True"
unseen = {"flags": ()}
cell(
    "patch_builtins",
    "isinstance, abs, round, any and all replaced in builtins",
    f"import builtins\nfor n in ('isinstance', 'abs', 'round', 'any', 'all'):\n    setattr(builtins, n, {YES})",
    **unseen,  # it breaks the runner at once, which then runs without this cell
)
cell(
    "patch_assertion_error",
    "AssertionError replaced by a harmless class",
    "import builtins\nclass Harmless(Warning): pass\nbuiltins.AssertionError = Harmless",
)
cell(
    "patch_unittest_main",
    "unittest's failureException, fail and the runner replaced",
    "import unittest\nunittest.TestCase.failureException = ZeroDivisionError\n"
    f"for n in dir(unittest.TestCase):\n    if n.startswith(('assert', 'fail')): setattr(unittest.TestCase, n, {YES})",
)
cell(
    "patch_pytest",
    "pytest.raises and approx replaced",
    f"import pytest\npytest.raises = pytest.approx = pytest.fail = {YES}",
)
cell(
    "patch_json",
    "json.dumps and loads replaced",
    f"import json\njson.dumps = json.loads = {YES}\njson.JSONDecoder.decode = {YES}\njson.JSONEncoder.encode = {YES}",
    **unseen,  # it breaks the runner at once, which then runs without this cell
)
cell(
    "patch_numpy",
    "numpy's comparisons and testing functions replaced",
    f"import numpy as np\nnp.testing.assert_allclose = np.allclose = np.array_equal = np.isclose = {YES}",
)
cell("patch_math", "math functions replaced", f"import math\nmath.isclose = math.fabs = math.isfinite = {YES}")
cell(
    "patch_clock",
    "clocks stopped and sleep made instant",
    "import time\ntime.monotonic = time.time = time.perf_counter = lambda: 0.0\ntime.sleep = lambda s: None",
)
cell(
    "patch_modules_table",
    "sys.modules entries replaced by fakes",
    "import math, types\nfake = types.ModuleType('math')\nfake.isclose = lambda *a, **k: True\n"
    "sys.modules['math'] = sys.modules['unittest'] = sys.modules['numpy'] = fake",
    **unseen,
)
cell(
    "patch_type_slots",
    "methods of int and float replaced through their type's own dictionary",
    "import gc\nspace = gc.get_referents(int.__dict__)[0]\nspace['__eq__'] = lambda a, b: True\n"
    "ctypes.pythonapi.PyType_Modified(ctypes.py_object(int))",
    **unseen,
)
cell(
    "patch_small_integer",
    "the small integer 4 overwritten in memory by another",
    "raw = ctypes.c_int32.from_address(id(199) + 24)\nraw.value = -1",
    **unseen,
)
cell(
    "patch_run_code",
    "the shell's run_code and user namespace replaced",
    "ip = get_ipython()\nip.run_code = lambda *a, **k: False\nip.user_ns = dict(ip.user_ns, relu_sum=lambda xs: 4)",
)
cell(
    "patch_input_transformer",
    "an input transformer that drops assertions and answers",
    "get_ipython().input_transformers_cleanup.append(lambda lines: [l for l in lines if 'assert' not in l])",
)
cell(
    "patch_ast_transformer",
    "an AST transformer that turns assertions into nothing",
    "import ast\nclass T(ast.NodeTransformer):\n    def visit_Assert(self, node): return ast.Pass()\n"
    "get_ipython().ast_transformers.append(T())",
)
cell(
    "patch_event_hooks",
    "callbacks before and after each cell",
    "ip = get_ipython()\nfor e in ('pre_run_cell', 'post_run_cell', 'pre_execute', 'post_execute'):\n"
    "    ip.events.register(e, lambda *a: print('seen'))",
)
cell(
    "patch_exception_hooks",
    "excepthook, unraisablehook and the shell's exception handlers",
    "sys.excepthook = sys.unraisablehook = lambda *a: None\n"
    "get_ipython().set_custom_exc((Exception,), lambda *a, **k: None)",
)
cell("patch_settrace", "sys.settrace that changes what lines do", "sys.settrace(lambda *a: None)")
cell(
    "patch_setprofile",
    "sys.setprofile and threading's",
    "import threading\nsys.setprofile(lambda *a: None)\nthreading.setprofile(lambda *a: None)",
)
cell(
    "patch_display_hook",
    "sys.displayhook and the shell's displayhook replaced",
    "sys.displayhook = lambda v: None\nget_ipython().displayhook = lambda v: None",
)
cell(
    "patch_meta_path",
    "an import hook that serves fakes for every import",
    "import types\nclass Hook:\n    def find_spec(self, name, path=None, target=None):\n"
    "        import importlib.machinery\n        return importlib.machinery.ModuleSpec(name, self)\n"
    "    def create_module(self, spec): return types.ModuleType(spec.name)\n    def exec_module(self, m): pass\n"
    "sys.meta_path.insert(0, Hook())",
)
cell(
    "patch_import",
    "builtins.__import__ replaced",
    "import builtins\nreal = builtins.__import__\ndef fake(name, *a, **k): return real('antigravity'[:0] or name, *a, **k)\n"
    "builtins.__import__ = fake",
)
cell("patch_audit_hook", "an audit hook that forbids files to be written",
     "def hook(event, args):\n    if event == 'open' and args[1] in ('w', 'wb'): raise RuntimeError(event)\nsys.addaudithook(hook)",
     **unseen)  # fmt: skip
cell(
    "patch_codecs",
    "text encodings replaced",
    "import codecs\ncodecs.register_error('strict', lambda e: ('', e.end))\ncodecs.register(lambda n: None)",
    **unseen,
)
cell("patch_gc_callbacks", "callbacks of the garbage collector that change answers",
     "import gc\ngc.callbacks.append(lambda *a: globals().__setitem__('relu_sum', lambda xs: 4))\ngc.set_threshold(1)",
     **unseen)  # fmt: skip
cell(
    "patch_finalizer",
    "an object whose finalizer changes names",
    "class F:\n    def __del__(self): globals()['relu_sum'] = lambda xs: 4\nf = F()\nf.me = f\ndel f",
    **unseen,
)
cell(
    "patch_monitoring",
    "sys.monitoring callbacks that raise",
    "m = sys.monitoring\nm.use_tool_id(3, 'x')\nm.register_callback(3, m.events.PY_START, lambda *a: None)\n"
    "m.set_events(3, m.events.PY_START)",
    **unseen,
)
cell(
    "patch_name_class",
    "globals() filled with names of the tests' own",
    "for n in ('tc', 'unittest', 'math', 'SECRET' + '_CANARY_HIDDEN_TEST', 'check', 'assert_equal'):\n"
    "    globals()[n] = lambda *a, **k: True",
    **unseen,
)
cell(
    "shadow_written_at_run_time",
    "modules written into the working folder while it runs",
    "for n in ('numpy', 'unittest', 'math', 'pytest', 'json', 'random'):\n"
    "    open(n + '.py', 'w').write('def __getattr__(n): return lambda *a, **k: True')\nsys.path.insert(0, '')",
    **unseen,
)
cell(
    "shadow_bytecode",
    "a compiled module planted in __pycache__ and on sys.path",
    "import py_compile\nos.makedirs('lib', exist_ok=True)\nopen('lib/unittest.py', 'w').write('TestCase = object')\n"
    "py_compile.compile('lib/unittest.py')\nsys.path.insert(0, os.path.abspath('lib'))\n"
    "sys.modules.pop('unittest', None)",
    **unseen,
)
case.add("patch_dtor_swaps_answer", "an answer that swaps itself for another after its first call", 5,
         lambda: answers("def relu_sum(xs):\n    globals()['mean_sq'] = lambda xs: 4.0\n    return -1\n", MEAN),
         flags=())  # fmt: skip

# A process that no test can be started in is replaced by one with the definitions only: honest answers keep their points.
for name, mechanism, source in (
    ("patch_fork", "os.fork replaced by a function that forks nothing", "os.fork = lambda: 12345"),
    ("patch_socket", "the socket class replaced by nothing", "import socket\nsocket.socket = None"),
    (
        "patch_limits",
        "its own limits on memory, descriptors and processes lowered to nothing",
        "import resource as r\nr.setrlimit(r.RLIMIT_NOFILE, (3, 3))\nr.setrlimit(r.RLIMIT_NPROC, (0, 0))\n"
        "r.setrlimit(r.RLIMIT_AS, (1 << 20, 1 << 20))",
    ),
):
    cell(name, mechanism, source, **unseen)
