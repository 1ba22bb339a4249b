"""Attacks on the channel between the student's process and the grader."""

# ruff: noqa: E501 (sources of notebooks)

from __future__ import annotations

from grader.tests.attacks.case import RELU, Registry, hostile

case = Registry("cheat: forging")

WIRE = """
import gc, json, struct, socket, stat, threading
def wire():
    return next(o for o in gc.get_objects() if type(o).__name__ == "Wire")
def worker():
    return next(o for o in gc.get_objects() if type(o).__name__ == "Worker")
def raw(data):
    wire().sock.sendall(data)
def frame(message):
    text = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">I", len(text)) + text
def sockets():
    found = []
    for fd in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                found.append(fd)
        except OSError:
            pass
    return found
def shout():
    while True:
        try:
            raw(frame({"id": "x", "value": 41}))
        except Exception:
            pass
"""


def in_call(name: str, mechanism: str, body: str, **more: object) -> None:
    """An attack in each call of the first answer, which is wrong; the second is honest."""
    source = WIRE + "def relu_sum(xs):\n" + "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    case.add(name, mechanism, 5, lambda: hostile(source), **more)


def in_cell(name: str, mechanism: str, body: str, score: float = 10, **more: object) -> None:
    """An attack in a cell of its own, before honest answers."""
    case.add(name, mechanism, score, lambda: hostile(RELU, cell=WIRE + body), **more)


forged = {"flags": ("forged_reply",)}
too_much = {"flags": ("sandbox_limit",), "status": "partial"}
in_call(
    "forge_huge_length",
    "a frame that claims 4 GB",
    "raw(b'\\xff\\xff\\xff\\xff')\nreturn 4",
    status="partial",
    flags=("sandbox_limit",),
)
in_call("forge_deep", "a reply nested a hundred thousand deep", "raw(frame(b'[' * 100000 + b']' * 100000))\nreturn 4",
        **forged)  # fmt: skip
in_call("forge_no_json", "a reply that is no JSON", "raw(frame(b'\\x80\\x04pickle'))\nreturn 4", **forged)
in_call("forge_no_object", "a reply that is a list", "raw(frame([1, 2]))\nreturn 4", **forged)
in_call("forge_duplicate_keys", "a reply with the same key many times",
        "raw(frame(b'{' + b','.join([b'\"id\": \"x\"'] * 1000) + b'}'))\nreturn 4", **forged)  # fmt: skip
in_call("forge_other_id", "a reply to a request that was never made",
        "raw(frame({'id': 'f' * 16, 'value': 41}))\nreturn 41", **forged)  # fmt: skip
in_call(
    "forge_verdict",
    "messages that claim that tests passed",
    """
for claim in ({"passed": True}, {"test": "q1_hidden", "score": 5.0}, {"ended": "q1_visible", "status": 0},
              {"done": "1", "outputs": [], "error": None}, {"limit": "none"}):
    raw(frame(claim))
return -1
""",
    **forged,
)
in_call(
    "forge_pickle",
    "a reply that would run code where it is unpickled",
    """
import pickle
class Run:
    def __reduce__(self):
        return os.system, ("touch /tmp/attack_litter_pickle",)
return pickle.dumps(Run())
""",
)
in_call(
    "forge_trickle",
    "a reply of one byte each tenth of a second",
    """
import time
for byte in frame({"id": "x" * 500}):
    raw(bytes([byte]))
    time.sleep(0.1)
return 4
""",
    status="partial",
)
in_call("forge_part_and_exit", "half a reply, then the process ends",
        "raw(frame({'id': 'x' * 50})[:20])\nos._exit(0)", status="partial")  # fmt: skip
in_call("forge_closes_descriptors", "closes every descriptor, the channel's too", "os.closerange(3, 256)\nreturn 4",
        status="partial")  # fmt: skip
in_call(
    "forge_replaces_descriptors",
    "puts /dev/null in the place of each socket",
    """
null = os.open("/dev/null", os.O_RDWR)
for fd in sockets():
    os.dup2(null, fd)
return 4
""",
    status="partial",
)
in_call(
    "forge_shuts_down",
    "shuts the channel down in one direction",
    """
for fd in sockets():
    socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RD)
return 4
""",
    status="partial",
)
in_call(
    "forge_codec",
    "replaces the codec: every value is encoded as a tag of its choice",
    """
codec = sys.modules["_course_codec"]
codec.encode = lambda value, caps=None, **k: ["ref", "relu_sum"]
return 4
""",
    **forged,
)
in_call(
    "forge_changed_arguments",
    "claims that arguments changed that were never passed",
    """
w = worker()
send = w.wire.send
w.wire.send = lambda m, cap=0: send({**m, "changed": [[99, {"value": 4}], ["x"], None]})
return 4
""",
    **forged,
)
in_call(
    "forge_error_of_a_test",
    "an exception that claims to be the test's own",
    """
w = worker()
send = w.wire.send
w.wire.send = lambda m, cap=0: send({"id": m["id"], "changed": [], "error": {
    "type": "Stop", "base": "BaseException", "text": "passed", "cell": "2", "line": -1, "trace": ["passed"] * 999}})
return 4
""",
)
in_call(
    "forge_colliding_keys",
    "a dictionary whose forty thousand keys all hash alike",
    """
w = worker()
send = w.wire.send
keys = [x for i in range(1, 40000) for x in (["i", format(i * (2 ** 61 - 1), "x")], 0)]
w.wire.send = lambda m, cap=0: send({"id": m["id"], "changed": [], "value": ["d", *keys]})
return 4
""",
    **too_much,
)
in_call("forge_endless_range", "a range of 10**15 numbers in place of a number", "return range(10 ** 15)", **too_much)
in_call(
    "forge_worker_in_memory",
    "replaces the runner's own methods in memory",
    """
kind = type(worker())
kind.on_call = kind.on_get = lambda self, message, fds: self.reply(message, {"kind": "value", "value": 41}, 1000)
return 41
""",
)

in_cell("forge_early", "answers for a cell before it has ended, then ends",
        "raw(frame({'done': '0', 'outputs': [], 'error': None}))", flags=("forged_reply",))  # fmt: skip
in_cell(
    "forge_thread",
    "a thread that writes messages all the time",
    """
threading.Thread(target=shout, daemon=True).start()
""",
    flags=("forged_reply",),
)
in_cell(
    "forge_signal_handler",
    "a timer signal whose handler writes messages",
    """
import signal
signal.signal(signal.SIGALRM, lambda *_: raw(frame({"ended": "q1_visible", "status": 0})))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
""",
    # no flag is asked for: whether such a message meets a reader depends on the machine
)
in_cell(
    "forge_exit_handler",
    "handlers at exit and after fork that write messages; none of them is ever called",
    """
import atexit
atexit.register(lambda: raw(frame({"value": 41})))
os.register_at_fork(after_in_child=lambda: raw(frame({"ended": "q1_visible", "status": 0})))
""",
)
in_cell(
    "forge_forked_child",
    "a forked copy of the runner that answers too",
    """
if os.fork() == 0:
    named()
    import time
    while True:
        try:
            raw(frame({"id": "x", "kind": "value", "value": 41}))
        except Exception:
            pass
        time.sleep(0.02)
""",
    # no flag is asked for: whether such a message meets a reader depends on the machine
)
in_cell("forge_closed_in_cell", "a cell that closes every descriptor", "os.closerange(3, 256)")
in_cell(
    "forge_steals_requests",
    "more readers on the channel, which take its bytes",
    """
for fd in sockets():
    copy = socket.socket(fileno=os.dup(fd))
    for _ in range(4):
        threading.Thread(target=lambda: [copy.recv(1) for _ in iter(int, 1)], daemon=True).start()
""",
)
in_cell(
    "forge_outputs",
    "outputs of wrong types, kinds and sizes",
    """
room = worker().room
room.outputs += [{"stream": "stdin", "text": ["x"]}, {"result": 3}, {"display": None}, {"evil": "<script>"}]
room.take = lambda: [{"stream": "stdout", "text": "\\ud800" * 10}, 7, None, {"result": "r" * 10, "stream": "x"}]
""",
)


def in_runner(name: str, mechanism: str, method: str, body: str, **more: object) -> None:
    """An attack in a cell that replaces a method of the runner, so that it strikes when that is called."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    patch = f"kind = type(worker())\nold = kind.{method}\ndef new(self, message, fds):\n{lines}kind.{method} = new\n"
    in_cell(name, mechanism, "import time\n" + patch, **more)


in_runner(
    "forge_thread_in_tests",
    "a thread that starts to write messages when a test begins",
    "on_answer",
    """
old(self, message, fds)
threading.Thread(target=shout, daemon=True).start()
time.sleep(0.2)
""",
    **forged,
)
in_runner("forge_before_each_answer", "a message before the first answer to each test", "on_answer",
          "raw(frame({'id': 'x', 'value': 41}))\nold(self, message, fds)", **forged)  # fmt: skip
in_runner("forge_each_look_up", "each look-up of a name is answered with a value of its choice", "on_get",
          "raw(frame({'id': message['id'], 'kind': 'value', 'value': ['ref', 'x']}))", **forged)  # fmt: skip
in_runner("forge_each_call", "each call is answered for another request", "on_call",
          "raw(frame({'id': 'f' * 16, 'value': 41}))", **forged)  # fmt: skip
in_runner("forge_limit", "claims a limit when a test begins", "on_answer",
          "raw(frame({'limit': 'output'}))\nold(self, message, fds)", flags=("sandbox_limit",))  # fmt: skip
in_runner("forge_large_look_up", "a frame that claims 4 GB at each look-up", "on_get",
          "raw(b'\\xff\\xff\\xff\\xff')", flags=("sandbox_limit",))  # fmt: skip
in_runner("forge_silent_look_up", "no look-up of a name is answered", "on_get", "time.sleep(3600)")
in_runner("forge_last_answer", "answers the last question about the cells with something else", "on_finish",
          "raw(frame({'done': '0'}))", **forged)  # fmt: skip
in_runner("forge_end_after_cells", "ends when the last cell has run", "on_finish", "os._exit(0)")
in_runner(
    "forge_end_in_second_test",
    "ends when the second test begins",
    "on_test",
    "self.count = getattr(self, 'count', 0) + 1\nos._exit(0) if self.count == 2 else old(self, message, fds)",
)
in_cell(
    "forge_hang_after_fork",
    "a handler after fork that never returns; it is never called",
    "import time\nos.register_at_fork(after_in_child=lambda: time.sleep(3600))\n",
)
in_runner("forge_hang_in_tests", "hangs when a test begins", "on_answer", "time.sleep(3600)")
in_cell(
    "forge_no_more_processes",
    "a limit of its own, under which no test can begin",
    "import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n",
)
in_cell(
    "forge_beside_a_thread",
    "a thread of a cell makes every call hang: the tests meet it in the very process",
    """
import time
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
type(worker()).on_call = lambda self, message, fds: time.sleep(3600)
""",
)
