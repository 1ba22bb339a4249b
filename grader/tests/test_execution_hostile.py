"""Guards the channel and the tests against code that attacks them: no forged message earns a point, and the damage
stays within the test that did it."""

from __future__ import annotations

import pytest

from grader.tests.execution_support import extra, graded, locked, outcome, run, solution, statuses

pytestmark = pytest.mark.sandbox
# How a student's function finds the runner that called it.
FIND = """
import os, signal, socket, struct, sys
def runner():
    frame = sys._getframe()
    while frame:
        me = frame.f_locals.get('self')
        if type(me).__name__ == 'Worker':
            return me, frame.f_locals.get('message')
        frame = frame.f_back
def raw(data):
    runner()[0].wire.sock.sendall(data)
def reply(**fields):
    me, message = runner()
    me.wire.send({'id': message['id'], **fields})
"""
GOOD = (solution("def double(x):\n    return 2 * x\n", "good"), graded("assert double(2) == 4", "good_test"))
BEGIN = "### BEGIN HIDDEN TESTS\n"
CHECK = "for _ in range(3):\n    assert f([2]) == [4]\n"

FORGED = {
    "a message of four gigabytes": "raw(b'\\xff' * 8)",
    "a message cut off": "raw(struct.pack('>I', 100) + b'{}'); os._exit(0)",
    "no JSON": "raw(struct.pack('>I', 2) + b'}{')",
    "a list": "raw(struct.pack('>I', 2) + b'[]')",
    "deep nesting": "raw(struct.pack('>I', 100000) + b'[' * 100000)",
    "a number of a million digits": "raw(struct.pack('>I', 1000000) + b'1' * 1000000)",
    "early replies with guessed numbers": '[raw(b\'\\0\\0\\0\\x1f{"id": "%016x", "v":1}  \' % i) for i in range(9)]',
    "the reply twice": "reply(value=['l', 4]); reply(value=['l', 4])",
    "an unknown tag": "reply(value=['pickle', 'x'])",
    "a reference": "reply(value=['ref', 'check'])",
    "no value": "reply()",
    "an exception of a strange type": "reply(error=[1])",
    "an exception without fields": "reply(error={})",
    "a verdict": "reply(error={'type': 'Stop', 'base': 'AssertionError', 'text': 7, 'cell': {}, 'line': '3'})",
    "changed arguments that are none": "reply(value=['l', 5], changed=[[7, {'value': 1}]])",
    "changed arguments of a strange kind": "reply(value=['l', 5], changed={'0': 1})",
    "an array that doesn't fit its shape": "reply(value=['na', '<f8', [9999999], ''])",
    "an output limit": "raw(struct.pack('>I', 18) + b'{\"limit\":\"output\"}')",
    "a set-up": "runner()[0].wire.send({'ready': True})",
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_message_earns_nothing_and_harms_nobody(name):
    done = run(
        solution(FIND + f"def f(x):\n    {FORGED[name]}\n    return [5]\n"),
        graded(CHECK, "a"),
        graded("assert f([3]) == [6]", "b"),
        *GOOD,
    )
    assert [t.score for t in done.tests] == [0, 0, 1]
    assert outcome(done, "a").status in ("error", "limit", "crashed", "failed")


@pytest.mark.parametrize("name", ["no JSON", "the reply twice", "an unknown tag", "changed arguments that are none"])
def test_forged_messages_are_flagged(name):
    done = run(solution(FIND + f"def f(x):\n    {FORGED[name]}\n    return [5]\n"), graded(CHECK, "a"), *GOOD)
    assert "forged_reply" in {f.kind for f in done.flags}


DAMAGE = {
    "close every descriptor": "os.closerange(0, 4096)",
    "shut the channel": "runner()[0].wire.sock.shutdown(socket.SHUT_RDWR)",
    "kill the parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "stop the parent": "os.kill(os.getppid(), signal.SIGSTOP)",
    "stop itself": "os.kill(os.getpid(), signal.SIGSTOP)",
    "kill everything": "os.kill(-1, signal.SIGKILL)",
    "exit": "os._exit(0)",
    "exit with a child that keeps the channel": "os.fork() and os._exit(0); __import__('time').sleep(99)",
    "fill the folder": "[open(f'f{i}', 'w').write('x' * 10**6) for i in range(400)]",
    "break the codec": "[setattr(sys.modules['_course_codec'], n, None) for n in ('encode', 'decode', 'dumps')]",
    "break the builtins": "import builtins; [delattr(builtins, n) for n in ('len', 'zip', 'enumerate', 'type')]",
    "replace the runner": "type(runner()[0]).on_call = lambda *a: None",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_done_during_one_test_does_not_reach_the_next(name):
    source = FIND + f"def f(x):\n    if x == 'attack':\n        {DAMAGE[name]}\n    return x + x\n"
    done = run(
        solution(source),
        graded("assert f('attack') == 0", "a"),
        graded("assert f(2) == 4", "b"),
        *GOOD,
    )
    assert outcome(done, "a").score == 0
    assert [outcome(done, t).status for t in ("b", "good_test")] == ["passed", "passed"]


@pytest.mark.parametrize(
    "line",
    [
        "runner()[0].wire.send({'done': '0', 'outputs': [], 'error': None})",
        "raw(b'\\xff' * 100)",
        "runner()[0].wire.sock.close()",
        "kept = [os.dup(i) for i in range(3, 10) if os.path.exists(f'/proc/self/fd/{i}')]",
        "os.closerange(3, 4096)",
        "runner()[0].on_test = runner()[0].on_answer = lambda *a: os._exit(0)",
        "import builtins; builtins.len = lambda x: 1",
        "import builtins; builtins.isinstance = lambda *a: True",
        "import builtins; builtins.__import__ = None",
        "os.fork()",
        "os.fork() or __import__('time').sleep(99)",
    ],
)
def test_a_cell_that_attacks_the_channel_earns_nothing_and_the_grader_goes_on(line):
    done = run(extra(FIND + line), solution("def f(x):\n    return [5]\n"), graded(CHECK, "a"), *GOOD)
    assert outcome(done, "a").score == 0
    assert len(done.tests) == 2


def test_objects_that_are_equal_to_everything_are_equal_to_nothing():
    source = (
        "class Any:\n    def __eq__(s, o): return True\n    __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __eq__\n"
        "    def __bool__(s): return True\n    def __getattr__(s, n): return s\n    def __call__(s, *a): return s\n"
        "    def __len__(s): return 1\n    def __iter__(s): return iter([s])\n    def __hash__(s): return 1\n"
        "class I(int): __eq__ = Any.__eq__; __hash__ = int.__hash__\n"
        "class L(list): __eq__ = Any.__eq__; __len__ = Any.__len__\n"
        "class S(str): __eq__ = Any.__eq__; __hash__ = str.__hash__\n"
        "kinds = [Any(), I(7), L([7]), S('7')]\ndef f(i): return kinds[i]\n"
    )
    checks = [
        "assert f(0) == 1",
        "assert f(0)",
        "assert f(0) != 2",
        "assert not f(0) != 1",
        "assert f(1) == 8",
        "assert f(2) == [8]",
        "assert f(3) == '8'",
        "import unittest\nunittest.TestCase().assertEqual(f(0), 1)",
        "import unittest\nunittest.TestCase().assertNotEqual(f(0), 2)",
        "import unittest\nunittest.TestCase().assertTrue(f(0))",
        "import numpy as np\nnp.testing.assert_allclose(f(0), 1.0)",
        "import numpy as np\nassert np.array_equal(f(0), [1])",
        "import math\nassert math.isclose(f(0), 1)",
        "import torch\ntorch.testing.assert_close(f(0), torch.ones(1))",
        "assert sorted(f(0)) == []",
        "assert isinstance(f(0), int)",
        "f(0)",
    ]
    done = run(solution(source), *(graded(check, f"t{i}") for i, check in enumerate(checks)))
    assert [t.score for t in done.tests] == [0] * len(checks)


def test_a_students_patches_of_test_libraries_change_nothing_and_are_flagged():
    patches = (
        "import unittest, math, json, builtins\n"
        "for n in dir(unittest.TestCase):\n"
        "    if n.startswith('assert'): setattr(unittest.TestCase, n, lambda *a, **k: None)\n"
        "math.isclose = lambda *a, **k: True\njson.loads = json.dumps = lambda *a, **k: 4\n"
        "builtins.sum = lambda *a: 4\n"
        "def f(x):\n    return [5]\n"
    )
    done = run(
        solution(patches),
        graded("import math\nassert math.isclose(f([1])[0], 2.0)", "a"),
        graded("import unittest\nunittest.TestCase().assertEqual(f([1]), [2])", "b"),
        *GOOD,
    )
    assert [t.score for t in done.tests[:2]] == [0, 0]
    details = {f.detail for f in done.flags if f.kind == "runner_patched"}
    assert {"builtins.sum", "math.isclose", "json.loads"} <= details
    assert any(d.startswith("unittest.case.TestCase: assert") for d in details)


@pytest.mark.parametrize(
    "line",
    [
        "ip.run_cell_async = None",
        "ip.kernel.do_execute = lambda *a: None",
        "ip.showtraceback = lambda *a: None",
        "ip.set_custom_exc((Exception,), lambda *a: None)",
        "ip.events.register('post_run_cell', lambda r: None)",
        "ip.input_transformers_cleanup.append(lambda lines: lines)",
        "import ast\nclass T(ast.NodeTransformer): pass\nip.ast_transformers.append(T())",
        "type(ip).run_code = lambda *a: None",
        "import sys\nsys.settrace(lambda *a: None)",
        "import sys\nclass F:\n    def find_spec(*a): return None\nsys.meta_path.insert(0, F())",
        "import sys\nsys.modules['json'] = 3",
        "import numpy.testing\nnumpy.testing.assert_allclose = lambda *a: None",
        "import builtins\nbuiltins.sum = lambda *a: 4",
    ],
)
def test_a_patched_runner_is_flagged(line):
    done = run(extra("ip = get_ipython()\n" + line), *GOOD)
    assert "runner_patched" in {f.kind for f in done.flags}


@pytest.mark.parametrize(
    "source",
    [
        "%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1])",
        "%load_ext autoreload\n%autoreload 2",
        "import torch, numpy\ntorch.manual_seed(0)\nnumpy.random.seed(0)",
        "import unittest\nclass T(unittest.TestCase):\n    def assertDouble(self, x): pass\nunittest",
        "from functools import lru_cache, wraps\ndef deco(f):\n    return wraps(f)(lambda *a: f(*a))\nsum = deco(sum)",
        "!echo hi\n%timeit -n1 -r1 1+1\n%%time\n1",
        "import logging, warnings\nwarnings.filterwarnings('ignore')\nlogging.basicConfig()",
        "def print(*a): pass\ninput = str",
    ],
)
def test_honest_notebooks_are_not_flagged(source):
    done = run(extra(source), *GOOD)
    assert done.flags == () and statuses(done) == ["passed"]


@pytest.mark.parametrize(
    "expression",
    [
        "str(In) + str(get_ipython().history_manager.input_hist_raw)",
        "''.join(str(f.f_locals) + str(f.f_globals) for f in frames())",
        "''.join(repr(o) for o in __import__('gc').get_objects() if isinstance(o, (str, bytes, dict)))",
        "open('/proc/self/environ').read() + open('/proc/self/cmdline').read() + open('/proc/1/cmdline').read()",
        "str(__import__('linecache').cache)",
        "str([x for top in ('/etc', '/run', '/tmp', '/dev', '/home', '/opt', '/var', '/srv') for x in os.walk(top)])",
        "memory()",
    ],
)
def test_nothing_of_a_hidden_test_is_in_the_students_process(expression):
    source = (
        "import os, sys\n"
        "def frames():\n    f = sys._getframe()\n    while f:\n        yield f\n        f = f.f_back\n"
        "def memory():\n"
        "    out = []\n"
        "    with open('/proc/self/maps') as maps, open('/proc/self/mem', 'rb', 0) as mem:\n"
        "        for line in maps:\n"
        "            span, mode = line.split()[:2]\n"
        "            a, b = (int(x, 16) for x in span.split('-'))\n"
        "            if mode.startswith('rw') and b - a < 1 << 26:\n"
        "                try: mem.seek(a); out.append(mem.read(b - a))\n"
        "                except OSError: pass\n"
        "    return b''.join(out).decode('latin1')\n"
        # The word is looked for backwards: written forwards here, it would be found as the student's own source.
        f"def f(x):\n    text = {expression}\n    return 'EULAVYRANACX' in text[::-1], len(text) > 10\n"
    )
    done = run(
        locked("def helper():\n    return 1\n"),
        solution(source),
        graded(f"{BEGIN}XCANARYVALUE = 'XCANARYVALUE'\nassert f(1) == (False, True), f(1)\n### END HIDDEN TESTS\n"),
        graded(f"{BEGIN}assert f(2) == (False, True)\n### END HIDDEN TESTS\n", "t2"),
    )
    assert statuses(done) == ["passed", "passed"], done.notebook["cells"][2]["outputs"]
