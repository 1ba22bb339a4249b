"""Guards the trusted end of the channel: whatever bytes and messages come from a student's process, there is a value or
one of the few clear errors, at once.

Short here; ``FUZZ_EXAMPLES`` sets the number of examples for a long run.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grader.channel import codec
from grader.channel.wire import Channel, Closed, TimedOut
from grader.execution import tester
from grader.execution.remote import MissingName, Session, Stop, StudentFault, exception
from grader.execution.student import CellRun
from grader.model import Limits

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "120"))
QUICK = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
LIMITS = Limits(call_s=5.0, reply=1 << 16)
CAPS = codec.Caps(size=1 << 16, depth=64, elements=20_000)


@contextlib.contextmanager
def only_clear_errors() -> Iterator[None]:
    """Lets pass what a test may meet: the process is gone, an exception of the student's, a missing name."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, (Stop, StudentFault, MissingName)):
            raise


scalars = st.none() | st.booleans() | st.integers(-9, 1 << 70) | st.floats() | st.text(max_size=12)
tags = st.sampled_from([*codec._TAGS, "?", ""])
FIELDS = """id kind value callable module missing refused large error changed limit output type base text cell line
trace ended status ValueError AssertionError SystemExit ExceptionGroup numpy os <f8 float32"""
words = st.sampled_from(FIELDS.split())
data = st.recursive(
    scalars | words,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(tags, inner).map(list)
        | st.tuples(tags, words, inner, inner).map(list)
        | st.dictionaries(words | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=20,
)
messages = st.dictionaries(words, data, max_size=6)


def as_json(value: Any) -> bytes:
    """JSON text as a hostile process may write it: NaN, Infinity and huge numbers too."""
    return json.dumps(value).encode("ascii")


class Peer:
    """A student's process that answers each request with the next of its scripted frames, then hangs up.

    "@THE-TOKEN-HERE@" in a frame becomes the token of the request, which is as long.
    """

    def __init__(self, *frames: bytes) -> None:
        ours, self.theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.frames = frames
        self.thread = threading.Thread(target=self.answer, daemon=True)
        self.thread.start()

    def answer(self) -> None:
        side = Channel(self.theirs)
        try:
            for frame in self.frames:
                request = side.receive(time.monotonic() + 20, 1 << 26)
                token = request.get("id", "").encode()
                self.theirs.sendall(frame.replace(b"@THE-TOKEN-HERE@", token))
        except (Closed, TimedOut, OSError):
            pass
        finally:
            self.theirs.close()

    def __enter__(self) -> Channel:
        return self.channel

    def __exit__(self, *_: object) -> None:
        self.channel.close()
        self.thread.join(20)
        assert not self.thread.is_alive()


def framed(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def use(value: Any) -> None:
    """What a test does with a value; only a TypeError and its like may come of it."""
    for action in (bool, repr, lambda v: v == 1, lambda v: v == [v], lambda v: abs(v - 1.5), lambda v: v[0], hash, len):
        try:
            action(value)
        except (TypeError, ValueError, ArithmeticError, LookupError, RuntimeError):
            continue


@QUICK
@given(st.binary(max_size=300))
@example(b"\xff\xff\xff\xff")
@example(struct.pack(">I", 3) + b"{}")
@example(struct.pack(">I", 2) + b"[]")
def test_any_bytes_on_the_wire(raw):
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(raw)
        theirs.close()
        try:
            message = Channel(ours).receive(time.monotonic() + 20, 1 << 16)
        except (Closed, codec.CodecError):
            return
        assert type(message) is dict


@QUICK
@given(data, st.data())
def test_damaged_encodings_of_real_values(value, draw):
    try:
        text = bytearray(codec.dumps(codec.encode(value, CAPS))[codec.HEADER.size :])
    except codec.CodecError:
        return
    for _ in range(draw.draw(st.integers(0, 3))):
        place = draw.draw(st.integers(0, len(text) - 1))
        text[place : place + 1] = draw.draw(st.sampled_from([b"", b"[", b'"', b"9", b"e", b"0", b",", b"-", b"\\"]))
        if not text:
            return
    try:
        use(codec.decode(codec.loads(bytes(text)), CAPS))
    except codec.CodecError:
        return


@QUICK
@given(messages, st.booleans(), data)
def test_any_reply_to_a_look_up(message, honest_id, value):
    reply = {**message, **({"id": "@THE-TOKEN-HERE@"} if honest_id else {})}
    if honest_id and "kind" not in reply:
        reply |= {"kind": "value", "value": value}
    with Peer(framed(as_json(reply))) as channel:
        session = Session(lambda: channel, LIMITS, lambda why, asked: Stop("error", why))
        with only_clear_errors():
            use(session.get("answer"))


@QUICK
@given(messages, st.lists(st.tuples(st.integers(-1, 3), data), max_size=3), data)
def test_any_reply_to_a_call(message, changed, value):
    reply = {"value": value, **message, "id": "@THE-TOKEN-HERE@"}
    reply.setdefault("changed", [[index, {"value": item}] for index, item in changed])
    given_list, given_dict = [1, [2]], {"k": [3]}
    with Peer(framed(as_json(reply))) as channel:
        session = Session(lambda: channel, LIMITS, lambda why, asked: Stop("error", why))
        with only_clear_errors():
            use(session.call("answer", (given_list,), {"d": given_dict}))
        assert type(given_list) is list and type(given_dict) is dict


@QUICK
@given(st.lists(st.binary(max_size=60), max_size=3), st.booleans())
def test_any_bytes_in_place_of_a_reply_end_the_session_for_good(parts, framing):
    frames = [framed(p) if framing else p for p in parts]
    with Peer(*frames) as channel:
        session = Session(lambda: channel, Limits(call_s=0.3), lambda why, asked: Stop("error", why))
        with pytest.raises(Stop):
            session.get("answer")
        with pytest.raises(Stop):
            session.call("answer", (1,), {})


@QUICK
@given(data)
def test_any_description_of_an_exception(info):
    try:
        error = exception(info)
    except codec.CodecError:
        assert type(info) is not dict
        return
    assert isinstance(error, Exception) and not isinstance(error, AssertionError)
    assert len(str(error)) <= 2000 and len(error.type_name) <= 100
    assert str(error).replace("\n", "").replace("\t", "").isprintable() or not str(error)
    assert not isinstance(error, (SystemExit, KeyboardInterrupt, GeneratorExit))


@QUICK
@given(
    st.lists(st.dictionaries(st.sampled_from(["stream", "text", "result", "display", "x"]), data, max_size=4) | data)
)
def test_any_outputs_of_a_cell_make_a_valid_notebook(items):
    run = CellRun(outputs=items)
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": "", "execution_count": None}
    found = tester.outputs(run)
    nbformat.validate({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{**cell, "outputs": found}]})
    json.dumps(found).encode()


HOSTILE = [
    framed(b"[" * 60_000),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":' + b'["l",' * 9_000 + b"1" + b"]" * 9_000 + b"}"),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["i","' + b"f" * 60_000 + b'"]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["na","<f8",[1099511627776],"' + b"AAAA" * 9 + b'"]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["na","<f8",[0,1099511627776],""]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["na","<U9999999",[0],""]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["tt","float32",[0,0,9007199254740991],false,""]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["D","1E+999999999999999999"]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["fr",1,0]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":' + b"1" * 5_000 + b"}"),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":1e999}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["r",0,9007199254740991,1]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"module","module":"os"}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"module","module":["numpy"]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value","value":["ref","answer"]}'),
    framed(b'{"id":"@THE-TOKEN-HERE@","kind":"value"}'),
    framed(b'{"id":["@THE-TOKEN-HERE@"],"kind":"value","value":1}'),
    struct.pack(">I", (1 << 32) - 1),
    struct.pack(">I", 10) + b"{",
    b"",
]


@pytest.mark.parametrize("frame", HOSTILE, ids=lambda f: repr(f[4:60]))
def test_chosen_hostile_replies(frame):
    with Peer(frame) as channel:
        session = Session(lambda: channel, LIMITS, lambda why, asked: Stop("error", why))
        with only_clear_errors():
            found = session.get("answer")
            use(found)
            assert not isinstance(found, type(os))


def test_keys_that_all_hash_alike_are_refused_before_a_table_of_them_is_built():
    keys = [["i", format(i * sys.hash_info.modulus, "x")] for i in range(1, 3000)]
    for data in (["s", *keys], ["z", *keys], ["d", *(x for key in keys for x in (key, 0))]):
        with pytest.raises(codec.TooLarge):
            codec.decode(data, codec.Caps(size=1 << 20))


@pytest.mark.parametrize(
    "value",
    [{object()}, {object(): 1}, {(1, object())}, frozenset([lambda: 1])],
    ids=["set", "dict", "tuple in set", "function"],
)
def test_a_set_of_objects_is_refused_with_words_and_is_no_forgery(value):
    with pytest.raises(codec.CodecError, match="no plain values"):
        codec.encode(value)


def test_what_comes_along_with_an_answer_is_noticed():
    frame = framed(as_json({"kind": "value", "value": 1, "id": "@THE-TOKEN-HERE@"}))
    with Peer(frame + b"x") as channel:
        session = Session(lambda: channel, LIMITS, lambda why, asked: Stop("error", why))
        assert session.get("answer") == 1
        assert channel.waiting() == b"x"


def test_answers_that_come_in_one_piece_or_byte_by_byte():
    ours, theirs = socket.socketpair()
    messages = [{"a": 1}, {"b": "x" * 200_000}, {"c": []}]
    frames = b"".join(codec.dumps(m) for m in messages)

    def write() -> None:
        for byte in frames[:40]:
            theirs.sendall(bytes([byte]))
        theirs.sendall(frames[40:])

    thread = threading.Thread(target=write)
    with ours, theirs:
        thread.start()
        channel = Channel(ours)
        assert [channel.receive(time.monotonic() + 20, 1 << 20) for _ in messages] == messages
        assert channel.waiting() is None
        thread.join()


def test_a_peer_that_never_answers_costs_the_time_of_one_call_only():
    ours, theirs = socket.socketpair()
    session = Session(lambda: Channel(ours), Limits(call_s=0.2), lambda why, asked: Stop("timed_out", why))
    with ours, theirs:
        with pytest.raises(Stop, match="time"):
            session.get("answer")
        with pytest.raises(Stop, match="time"):
            session.get("answer")
