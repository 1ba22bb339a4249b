"""Guards the channel's codec: plain values, arrays and tensors come back as they went, and no bytes from a student can
make the decoder do anything but return a value or raise `CodecError`."""

from __future__ import annotations

import datetime as dt
import enum
import json
import math
from collections import Counter, OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.channel import codec

CAPS = codec.Caps(size=1 << 20, depth=64, elements=100_000)


def through(value, caps=CAPS, **options):
    frame = codec.dumps(codec.encode(value, caps, **options))
    return codec.decode(codec.loads(frame[codec.HEADER.size :]), caps)


def canonical(value):
    """Tells values apart by type, sign of zero, NaN and the order of keys, but not by the order of a set."""
    name = type(value).__name__
    if isinstance(value, dict):
        return name, [(canonical(k), canonical(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return name, [canonical(v) for v in value]
    if isinstance(value, (set, frozenset)):
        return name, sorted(repr(canonical(v)) for v in value)
    return name, repr(value)


def same(a, b) -> bool:
    return canonical(a) == canonical(b)


zones = st.none() | st.timedeltas(dt.timedelta(hours=-20), dt.timedelta(hours=20)).map(dt.timezone)
text = st.text(st.characters())  # lone surrogates too
hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | text
    | st.binary()
    | st.decimals().filter(lambda d: not d.is_snan())
    | st.fractions()
    | st.dates()
    | st.timedeltas()
    | st.datetimes(timezones=zones)
    | st.times(timezones=zones)
    | st.complex_numbers()
    | st.just(...)
    | st.builds(range, st.integers(-99, 99), st.integers(-99, 99), st.integers(1, 9)),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=8,
)
values = st.recursive(
    hashable | st.binary().map(bytearray) | st.builds(slice, st.none() | st.integers(), st.integers(), st.none()),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(hashable, inner, max_size=5)
        | st.sets(hashable, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=20,
)
relaxed = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@relaxed
@given(values)
def test_plain_values_come_back_with_type_order_and_sign(value):
    assert same(through(value), value)


@pytest.mark.parametrize("number", [0, -1, 2**53 - 1, 2**53, -(2**53), 2**64, -(10**400), 7**1_000])
def test_integers_of_any_size(number):
    assert through(number) == number and type(through(number)) is int


@pytest.mark.parametrize("value", [-0.0, float("nan"), float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308])
def test_special_floats(value):
    assert same(through(value), value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">i4").reshape(2, 3),
        np.array(3.5),
        np.zeros((0, 4), np.float16),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array(["aé", "中文"]),
        np.array([b"x", b"yz"]),
        np.arange(12.0).reshape(3, 4)[:, ::-2],
        np.array(["2026-01-01", "NaT"], "datetime64[D]"),
        np.asfortranarray(np.ones((2, 3))),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_numpy_arrays_keep_dtype_shape_and_bytes(array):
    back = through({"a": [array]})["a"][0]
    assert type(back) is np.ndarray and back.dtype == array.dtype and back.shape == array.shape
    assert back.tobytes() == array.tobytes() and back.flags.writeable


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.int8(-3), np.bool_(True), np.float32("nan"), np.str_("é")])
def test_numpy_scalars_stay_numpy_scalars(scalar):
    back = through(scalar)
    assert type(back) is type(scalar) and back.tobytes() == scalar.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64", "bool", "complex64", "uint8"])
def test_torch_tensors_keep_dtype_shape_and_bytes(dtype):
    dtype = getattr(torch, dtype)
    for tensor in (
        torch.tensor([[1, 0, 1], [0, 1, 1]]).to(dtype),
        torch.tensor(1).to(dtype),
        torch.zeros(0, 2).to(dtype),
    ):
        back = through((tensor, tensor.dtype))
        assert back[0].dtype is dtype and back[0].shape == tensor.shape and torch.equal(back[0], tensor)
        assert back[1] is dtype


def test_views_and_parameters_cross_as_plain_tensors():
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    back = through([weight, weight.t(), torch.arange(4)[::2]])
    assert type(back[0]) is torch.Tensor and back[0].requires_grad
    assert back[1].tolist() == [[0, 3], [1, 4], [2, 5]] and back[2].tolist() == [0, 2]


class Liar(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__

    def __int__(self):
        return 99

    __index__ = __int__


class LyingList(list):
    def __iter__(self):
        return iter([42])

    def __len__(self):
        return 1


class LyingDict(dict):
    def items(self):
        return [("forged", 1)]


class LyingText(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__

    def __str__(self):
        return "forged"


def test_subclasses_cross_as_their_base_value_read_with_base_methods():
    back = through([Liar(3), LyingList([1, 2]), LyingDict(a=1), LyingText("x"), Counter("aab"), OrderedDict(b=1)])
    assert [type(b) for b in back] == [int, list, dict, str, dict, dict]
    assert back == [3, [1, 2], {"a": 1}, "x", {"a": 2, "b": 1}, {"b": 1}]
    assert through(namedtuple("P", "x y")(1, 2)) == (1, 2)
    assert same(through(enum.IntEnum("E", "A B").B), 2)


def test_unknown_objects_become_tokens_that_satisfy_nothing():
    class Always:
        def __eq__(self, other):
            return True

        def __bool__(self):
            return True

    for value in (Always(), object(), lambda: 1, Always, np.array([None, 1], object), iter([])):
        token = through(value)
        assert type(token) is codec.Opaque
        assert (token == token, token == 1) == (False, False)
        for use in (bool, float, list, len, lambda t: t != 1, lambda t: t[0], lambda t: t < 1, lambda t: {t}):
            with pytest.raises(TypeError):
                use(token)


def test_a_structure_that_contains_itself_is_a_clear_error_and_a_shared_one_is_copied():
    loop: list = [1]
    loop.append(loop)
    with pytest.raises(codec.CodecError, match="contains itself"):
        codec.encode(loop, CAPS)
    row = [0]
    assert through([row, row]) == [[0], [0]]


def test_caps_on_size_depth_elements_and_digits():
    deep: list = []
    for _ in range(100):
        deep = [deep]
    doubling: list = []
    for _ in range(40):
        doubling = [doubling, doubling]
    for value in (deep, doubling, "x" * (1 << 21), np.zeros(1 << 18), list(range(200_000)), 1 << (1 << 18)):
        with pytest.raises(codec.TooLarge):
            codec.encode(value, CAPS)


def test_only_the_trusted_side_may_refer_to_functions():
    assert codec.encode([codec.Reference("f")], CAPS, strict=True) == ["l", ["ref", "f"]]
    with pytest.raises(codec.CodecError):
        codec.decode(["ref", "f"], CAPS)
    with pytest.raises(codec.CodecError, match="can't be passed"):
        codec.encode(object(), CAPS, strict=True)


MALFORMED = [
    {},
    [],
    ["?"],
    ["l", {}],
    [1, 2],
    [["l"]],
    1 << 60,
    1e400,
    ["i", "zz"],
    ["i", "-"],
    ["i", "f" * 50_000],
    ["f", "1.0"],
    ["c", 1, 2],
    ["d", 1],
    ["d", ["l"], 1],
    ["s", ["l"]],
    ["z", ["d"]],
    ["b", "é"],
    ["b", "a"],
    ["b", 1],
    ["r", 1, 2, 0],
    ["r", True, 2, 1],
    ["sl", 1],
    ["dt", 2026, 13, 1, 0, 0, 0, 0, 0, None],
    ["dt"],
    ["de", 10**12, 0, 0],
    ["fr", 1, 0],
    ["D", "1_x"],
    ["na", "|O", [1], "AAAAAAAAAAA="],
    ["na", "<f8", [2], "AAAAAAAAAAA="],
    ["na", "<f8", [-1], "AAAAAAAAAAA="],
    ["na", "<f8", [True], "AAAAAAAAAAA="],
    ["na", "<U0", [10**15], ""],
    ["na", "<f8,<f8", [1], "AAAAAAAAAAA="],
    ["na", "<f8"],
    ["ns", "<f8", "AA=="],
    ["nd", "object"],
    ["tt", "float32", [2], False, "AAAA"],
    ["tt", "Tensor", [1], False, "AAAA"],
    ["tt", "int64", [1], True, "AAAAAAAAAAA="],
    ["td", "load"],
    ["tv", "cpu; x"],
    ["o", 1],
]


@pytest.mark.parametrize("data", MALFORMED, ids=lambda d: json.dumps(d)[:40])
def test_malformed_values_are_refused(data):
    with pytest.raises(codec.CodecError):
        codec.decode(data, CAPS)


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.tuples(st.sampled_from(sorted(codec._TAGS)), inner, inner).map(list)
        | st.tuples(st.sampled_from(sorted(codec._TAGS)), st.sampled_from(["<f8", "float32", "-0", "nan"]), inner).map(
            list
        )
        | st.dictionaries(st.text(), inner, max_size=3)
    ),
    max_leaves=25,
)


@relaxed
@given(json_data)
def test_decoding_any_json_gives_a_value_or_a_clear_error(data):
    try:
        value = codec.decode(data, CAPS)
    except codec.CodecError:
        return
    codec.encode(value, codec.Caps(size=1 << 24))


@relaxed
@given(st.binary() | st.text('[]{}",:0123456789eE-.ntfaI \\u', max_size=200).map(str.encode))
def test_any_bytes_are_a_message_or_a_clear_error(data):
    try:
        codec.loads(data)
    except codec.CodecError:
        return


@pytest.mark.parametrize("data", [b"[" * 100_000, b"1" * 10_000, b"NaN", b"[Infinity]", b"\xff\xfe", b"", b'{"a":'])
def test_hostile_texts_are_refused(data):
    with pytest.raises(codec.CodecError):
        codec.loads(data)


def test_floats_beyond_the_range_are_refused():
    assert math.isinf(codec.loads(b"1e999"))
    with pytest.raises(codec.CodecError):
        codec.decode(codec.loads(b"1e999"), CAPS)
