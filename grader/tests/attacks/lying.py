"""Values that agree with everything, and exceptions that play tricks. The lie earns nothing, the honest answer 5."""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

from grader.tests.attacks.case import Registry, hostile

case = Registry("cheat: lying")
YES = "lambda *a, **k: True"


def value(name: str, mechanism: str, source: str) -> None:
    """Both answers return ``lie()``; nothing is earned."""
    both = "\ndef relu_sum(xs):\n    return lie()\n"
    case.add(name, mechanism, 0, lambda: hostile(source + both, "def mean_sq(xs):\n    return lie()\n"))


def raised(name: str, mechanism: str, source: str, **more: object) -> None:
    """The first answer raises ``trick()``; the second is honest."""
    case.add(name, mechanism, 5, lambda: hostile(source + "\ndef relu_sum(xs):\n    raise trick()\n"), **more)


DUNDERS = "eq ne lt le gt ge bool contains call instancecheck subclasscheck"
value("lie_equal", "an object equal to everything", f"class lie:\n    __eq__ = {YES}\n    __hash__ = lambda s: 0")
value(
    "lie_every_operator",
    "an object that answers every operator in its favour",
    "class lie:\n"
    + "".join(f"    __{d}__ = {YES}\n" for d in DUNDERS.split())
    + "    __sub__ = __rsub__ = __abs__ = __round__ = __float__ = lambda *a: 0.0\n    __int__ = __index__ = lambda s: 0\n",
)
value(
    "lie_int", "an int equal to everything", f"class I(int):\n    __eq__ = {YES}\n    __hash__ = int.__hash__\nlie = I"
)
value(
    "lie_float",
    "a float whose differences are zero",
    "class F(float):\n"
    f"    __eq__ = {YES}\n    __hash__ = float.__hash__\n"
    "    __sub__ = __rsub__ = __abs__ = __round__ = lambda *a: 0.0\nlie = lambda: F(99)",
)
value(
    "lie_str", "a text equal to everything", f"class S(str):\n    __eq__ = {YES}\n    __hash__ = str.__hash__\nlie = S"
)
value(
    "lie_list",
    "a list with lying length, items and equality",
    f"class L(list):\n    __eq__ = {YES}\n"
    "    __len__ = lambda s: 4\n    __iter__ = lambda s: iter([41])\n    __getitem__ = lambda s, i: 41\nlie = L",
)
value(
    "lie_dict",
    "a dict that holds whatever is asked for",
    f"class D(dict):\n    __eq__ = {YES}\n"
    "    __missing__ = lambda s, k: 41\n    __contains__ = lambda s, k: True\nlie = D",
)
value(
    "lie_class",
    "an object that claims another class",
    f"class lie:\n    __class__ = int\n    __eq__ = {YES}\n    __hash__ = None\n",
)
value(
    "lie_metaclass",
    "a class that everything is an instance of and equal to",
    "class M(type):\n"
    f"    __eq__ = __instancecheck__ = __subclasscheck__ = {YES}\n    __hash__ = type.__hash__\n"
    "class Any(metaclass=M): pass\nlie = lambda: Any",
)
value(
    "lie_array_protocols",
    "an object with numpy's protocols",
    "import numpy as np\nclass lie:\n"
    f"    __array_priority__ = 1e9\n    __eq__ = {YES}\n    __array_function__ = __array_ufunc__ = {YES}\n"
    "    __array__ = lambda s, *a, **k: np.array(41)\n",
)
value(
    "lie_array_subclass",
    "a numpy array whose comparisons agree",
    "import numpy as np\nclass A(np.ndarray):\n"
    f"    __eq__ = {YES}\n    __bool__ = lambda s: True\nlie = lambda: np.zeros(1).view(A)",
)
value("lie_mock_any", "unittest.mock.ANY", "from unittest.mock import ANY\nlie = lambda: ANY")
value(
    "lie_approx",
    "pytest.approx with an endless tolerance",
    "import pytest\nlie = lambda: pytest.approx(0, abs=float('inf'))",
)
value("lie_not_a_number", "NaN in every kind", "lie = lambda: float('nan')")
value("lie_infinity", "an infinity, which swallows differences", "lie = lambda: float('inf')")
value("lie_empty_array", "an empty array, whose comparisons are empty", "import numpy as np\nlie = lambda: np.empty(0)")
value(
    "lie_registered",
    "a class registered as a number",
    f"import numbers\nclass lie:\n    __eq__ = {YES}\nnumbers.Number.register(lie)\nnumbers.Real.register(lie)",
)
value(
    "lie_enum",
    "an IntEnum with lying equality",
    f"import enum\nclass E(enum.IntEnum):\n    A = 1\n    __eq__ = {YES}\n"
    "    __hash__ = int.__hash__\nlie = lambda: E.A",
)
value(
    "lie_decimal",
    "a Decimal with an exponent of a billion",
    "from decimal import Decimal\nlie = lambda: Decimal('1E+999999999')",
)
value("lie_coroutine", "a coroutine, a generator and an async generator",
      "async def lie():\n    yield 41\n")  # fmt: skip
value(
    "lie_reduce",
    "an object that runs a program when it is copied or unpickled",
    "class lie:\n"
    "    def __reduce_ex__(self, p): return os.system, ('touch /tmp/attack_litter_reduce',)\n"
    "    __deepcopy__ = __copy__ = lambda s, m=None: 41\n",
)
value("lie_bool", "True, which equals 1", "lie = lambda: True")
value(
    "lie_datetime_zone",
    "a time with a time zone that runs the student's code",
    "import datetime\n"
    "class Z(datetime.tzinfo):\n    utcoffset = lambda s, d: datetime.timedelta(0)\n"
    "lie = lambda: datetime.datetime(2026, 1, 1, tzinfo=Z())",
)

raised("raise_assertion", "AssertionError of the student's own", "trick = lambda: AssertionError('passed')")
raised(
    "raise_assertion_subclass",
    "a subclass of AssertionError named after pytest's outcomes",
    "class Skipped(AssertionError): pass\nSkipped.__module__ = '_pytest.outcomes'\ntrick = Skipped",
)
raised(
    "raise_skip",
    "unittest.SkipTest and pytest.skip",
    "import unittest, pytest\ntrick = lambda: unittest.SkipTest('skip') if len(os.sys.argv) else pytest.skip('x')",
)
raised(
    "raise_html",
    "a message that is HTML, JavaScript and template code",
    "trick = lambda: ValueError('</pre><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}{% x %}')",
)
raised(
    "raise_escapes",
    "a message of terminal escapes and control characters",
    "trick = lambda: ValueError('\\x1b]0;x\\x07\\x1b[2J\\x9b31m\\x00\\r\\b\\u202e\\u2066\\ud800')",
)
raised(
    "raise_formula",
    "a message that is a spreadsheet formula",
    'trick = lambda: ValueError(\'=HYPERLINK("http://x","y")\')\nclass Formula(ValueError): pass',
)
raised(
    "raise_markup",
    "a message and a type name of rich's markup and format fields",
    "trick = type('[bold]{student}%s<b>', (ValueError,), {'__str__': lambda s: '[/red][link=x]{0}%n'})",
)
raised(
    "raise_str_fails",
    "an exception whose str, repr and type name raise",
    "class M(type):\n"
    "    __repr__ = __str__ = lambda c: 1 / 0\n    __name__ = property(lambda c: 1 / 0)\n"
    "class trick(Exception, metaclass=M):\n    __str__ = __repr__ = lambda s: 1 / 0\n",
)
raised("raise_str_exits", "an exception whose str ends the process",
       "class trick(Exception):\n    __str__ = lambda s: os._exit(0)\n", status="partial")  # fmt: skip
raised("raise_str_hangs", "an exception whose str never returns",
       "class trick(Exception):\n    def __str__(s):\n        while True: pass\n", status="partial")  # fmt: skip
raised(
    "raise_text_subclass",
    "an exception whose str is a lying subclass of str",
    "class S(str):\n"
    "    __getitem__ = lambda s, i: 1 / 0\n    __str__ = lambda s: 1 / 0\n"
    "class trick(Exception):\n    __str__ = lambda s: S('text')\n",
)
raised(
    "raise_lying_class",
    "an exception that claims the class of another",
    "class trick(Exception):\n    __class__ = property(lambda s: StopIteration)\n",
)
raised(
    "raise_base_exception",
    "BaseException, GeneratorExit and KeyboardInterrupt",
    "trick = type('Base', (GeneratorExit, ), {})",
)
raised("raise_stub_words", "NotImplementedError, as the stub raises", "trick = NotImplementedError")
raised(
    "raise_traceback",
    "an exception whose traceback was swapped",
    "def trick():\n    try: 1 / 0\n    except Exception as e: return KeyError('x').with_traceback(e.__traceback__)\n",
)
raised(
    "raise_deep_recursion",
    "a traceback of a thousand frames",
    "def deep(n): return deep(n - 1) if n else 1 / 0\ndef trick(): return deep(900)\n",
)
