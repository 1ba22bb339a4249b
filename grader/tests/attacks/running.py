"""Honest code that runs in unusual ways: what works counts, what breaks costs its own question only."""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

from grader.model import Notebook
from grader.tests.attacks.case import MEAN, RELU, Registry, answers

case = Registry("run-time", quiet=True)


def q2(name: str, mechanism: str, body: str, **more: object) -> None:
    """A case whose second answer goes wrong: the first keeps its 5 points."""
    source = "def mean_sq(xs):\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    case.add(name, mechanism, 5, lambda: answers(q2=source), **more)


def fine(name: str, mechanism: str, q1: str = RELU, **cells: tuple[str, ...]) -> None:
    """A case that works in Jupyter, so it has full marks."""
    case.add(name, mechanism, 10, lambda: answers(q1, **cells))


stopped = {"status": "partial", "quiet": False}
q2("run_abort", "os.abort in a call", "import os\nos.abort()", **stopped)
q2("run_exit_in_call", "os._exit(0) in a call", "import os\nos._exit(0)", **stopped)
q2("run_deadlock", "a lock taken twice", "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()", **stopped)
q2("run_regex_bomb", "a regular expression that backtracks for ever", "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
   **stopped)  # fmt: skip
q2("run_big_power", "an integer with billions of digits", "return 10 ** (10 ** 10)", **stopped)
q2("run_endless_generator", "list() of an endless generator", "import itertools\nreturn list(itertools.count())",
   **stopped)  # fmt: skip
q2("run_waits_for_child", "waits for a child process that never ends",
   "import subprocess\nsubprocess.run(['sleep', '900'])", **stopped)  # fmt: skip
q2("run_nested_parentheses", "source text that overflows the parser", "eval('(' * 10000 + ')' * 10000)")
q2("run_returns_generator", "returns a generator instead of a number", "yield sum(xs)")
q2("run_returns_coroutine", "returns a coroutine that nobody awaits", "async def f():\n    return 4.0\nreturn f()")
q2("run_returns_function", "returns a function instead of a number", "return lambda: 4.0")
q2("run_asks_for_input", "input() in a call", "return float(input('mean? '))")
q2("run_raises_systemexit", "raise SystemExit in a call", "raise SystemExit(0)")
q2("run_raises_interrupt", "raise KeyboardInterrupt in a call", "raise KeyboardInterrupt")
q2("run_raises_stopiteration", "an unexpected StopIteration", "return next(iter([]))")
q2("run_raises_group", "an ExceptionGroup nested a thousand deep",
   "e = ValueError(1)\nfor _ in range(1000):\n    e = ExceptionGroup('g', [e])\nraise e")  # fmt: skip
q2("run_cause_cycle", "exceptions that cause each other in a circle",
   "a, b = ValueError('a'), KeyError('b')\na.__cause__, b.__cause__ = b, a\nraise a")  # fmt: skip
q2("run_text_of_10_mb", "an exception whose text has 10 MB", "raise ValueError('x' * 10_000_000)")
q2("run_huge_integer", "returns an integer of 30000 digits", "return 10 ** 30000")
q2("run_returns_itself", "returns a list that holds itself", "loop = []\nloop.append(loop)\nreturn loop")
q2("run_unhashable_keys", "returns a set of objects that do not cross", "class Key: pass\nreturn {Key(), Key()}")
q2("run_no_break_spaces", "indented with no-break spaces copied from a web page", "\u00a0\u00a0return 4.0")

fine("run_process_pool", "a multiprocessing pool inside the answer", """
    import multiprocessing
    def positive(x):
        return max(x, 0)
    def relu_sum(xs):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return sum(pool.map(positive, xs))
    """)  # fmt: skip
fine("run_thread_pool", "threads inside the answer", """
    from concurrent.futures import ThreadPoolExecutor
    def relu_sum(xs):
        with ThreadPoolExecutor(4) as pool:
            return sum(pool.map(lambda x: max(x, 0), xs))
    """)  # fmt: skip
fine("run_asyncio", "asyncio.run inside the answer", """
    import asyncio
    async def total(xs):
        await asyncio.sleep(0)
        return sum(max(x, 0) for x in xs)
    def relu_sum(xs):
        return asyncio.run(total(xs))
    """)  # fmt: skip
fine("run_subprocess", "a child Python inside the answer", """
    import subprocess, sys
    def relu_sum(xs):
        code = f"print(sum(max(x, 0) for x in {list(xs)!r}))"
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    """)  # fmt: skip
fine("run_numpy_scalar", "returns a numpy number", """
    import numpy as np
    def relu_sum(xs):
        return np.maximum(np.asarray(xs, float), 0).sum()
    """)  # fmt: skip
fine("run_fraction", "returns fractions", """
    from fractions import Fraction
    def relu_sum(xs):
        return sum((Fraction(x) for x in xs if x > 0), Fraction(0))
    """)  # fmt: skip
fine("run_mutates_argument", "empties its argument", """
    def relu_sum(xs):
        total = 0
        while xs:
            total += max(xs.pop(), 0)
        return total
    """)  # fmt: skip
fine("run_caches_in_file", "keeps a cache in a file and a global", """
    import json, os
    calls = []
    def relu_sum(xs):
        calls.append(1)
        seen = json.load(open("cache.json")) if os.path.exists("cache.json") else {}
        seen[str(xs)] = sum(max(x, 0) for x in xs)
        json.dump(seen, open("cache.json", "w"))
        return seen[str(xs)]
    """)  # fmt: skip
fine(
    "run_changes_folder",
    "changes and deletes its working folder",
    RELU,
    before=(
        "import os, shutil\nos.makedirs('deep/er')\nos.chdir('deep/er')\nshutil.rmtree(os.path.dirname(os.getcwd()))",
    ),
)
fine(
    "run_closes_output",
    "closes and replaces its standard streams",
    RELU,
    before=("import sys\nsys.stdout.close()\nsys.stderr.close()\nsys.stdin = None\nsys.stdout = open('log', 'w')",),
)
fine("run_low_recursion", "lowers the recursion limit", RELU, before=("import sys\nsys.setrecursionlimit(120)",))
fine(
    "run_warnings_as_errors",
    "turns warnings into errors",
    RELU,
    before=("import warnings\nwarnings.simplefilter('error')",),
)
fine("run_alarm", "an alarm signal a second after the cells", RELU, after=("import signal\nsignal.alarm(1)",))
fine("run_failing_thread", "a background thread that raises all the time", RELU, before=("""
    import threading, time
    def fail():
        raise ValueError("in a thread")
    def loop():
        while True:
            t = threading.Thread(target=fail)
            t.start()
            t.join()
            time.sleep(0.2)
    threading.Thread(target=loop, daemon=True).start()""",))  # fmt: skip
fine("run_slow_cell", "a cell of its own that sleeps past its limit", RELU, after=("import time\ntime.sleep(600)",))
fine(
    "run_control_characters",
    "prints terminal escapes, bells and carriage returns",
    RELU,
    before=("print('\\x1b]0;title\\x07\\x1b[2J\\x1b[31mred\\x1b[0m\\rover\\b\\x9b5n')",),
)
fine("run_html_output", "displays HTML, JavaScript, SVG and iframes", RELU, before=("""
    from IPython.display import HTML, SVG, IFrame, Javascript, Markdown, display
    display(HTML("<script>parent.document.title='owned'</script><img src=x onerror=alert(1)>"))
    display(Javascript("alert(2)"), SVG("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(3)'/>"))
    display(IFrame("https://example.org", 9, 9), Markdown("[x](javascript:alert(4))"))""",))  # fmt: skip
fine(
    "run_reseeds",
    "reseeds and uses random in a cell",
    RELU,
    before=("import random\nrandom.seed()\nprint(random.random() < 2)",),
)
fine("run_magics", "magics and shell lines in the middle of code", """
    def relu_sum(xs):
        total = 0
        for x in xs:
            %time max(x, 0)
            total += max(x, 0)
        return total
    here = !echo hello
    %timeit -n1 -r1 relu_sum([1])
    relu_sum?
    """)  # fmt: skip


@case("run_prints_a_lot_but_allowed", "prints just under the cap, in one piece", 10)
def _() -> Notebook:
    return answers(before=("print('x' * 900_000)",))


@case("run_warns_in_call", "logs and warns on both streams in each call", 10)
def _() -> Notebook:
    return answers(
        q2="import logging, sys\nlogging.basicConfig(level=0)\n"
        + MEAN.replace("    return", "    logging.error('e')\n    print('p', file=sys.stderr)\n    return")
    )
