"""The trusted end of a channel: frames over a socket, each within a deadline and a size."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from grader.channel import codec

CHUNK = 1 << 16


class Closed(Exception):
    """The other end is gone."""


class TimedOut(Exception):
    """Nothing complete came, or could be sent, before the deadline."""


class Channel:
    """Sends and receives messages. Deadlines are values of `time.monotonic`."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._read = bytearray()  # came, and wasn't asked for yet

    def _arm(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimedOut
        self.sock.settimeout(left)

    def send(self, message: dict[str, Any], deadline: float, fds: tuple[int, ...] = ()) -> int:
        """Send one message, with descriptors; returns its size in bytes.

        Raises:
            Closed, TimedOut: it could not be sent.
        """
        frame = codec.dumps(message)
        size = len(frame)
        self._arm(deadline)
        try:
            if fds:
                socket.send_fds(self.sock, [frame[:1]], list(fds))
                frame = frame[1:]
            self.sock.sendall(frame)
        except TimeoutError as e:
            raise TimedOut from e
        except OSError as e:
            raise Closed from e
        return size

    def receive(self, deadline: float, cap: int) -> dict[str, Any]:
        """The next message.

        Raises:
            Closed, TimedOut: it did not come.
            codec.TooLarge: its length is above ``cap`` bytes.
            codec.CodecError: it is no message.
        """
        return self._rest(b"", deadline, cap)

    def receive_with_fds(self, deadline: float, cap: int, count: int) -> tuple[dict[str, Any], list[int]]:
        """The next message and up to ``count`` descriptors that came with its first byte. Raises as `receive`."""
        self._arm(deadline)
        try:
            first, fds, _, _ = socket.recv_fds(self.sock, 1, count)
        except TimeoutError as e:
            raise TimedOut from e
        except OSError as e:
            raise Closed from e
        if not first:
            raise Closed
        try:
            return self._rest(first, deadline, cap), fds
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def _rest(self, begun: bytes, deadline: float, cap: int) -> dict[str, Any]:
        (size,) = codec.HEADER.unpack(begun + self._exactly(codec.HEADER.size - len(begun), deadline))
        if size > cap:
            raise codec.TooLarge(f"a message of {size} bytes, more than {cap}")
        message = codec.loads(self._exactly(size, deadline))
        if type(message) is not dict:
            raise codec.CodecError("a message that is no object")
        return message

    def _exactly(self, n: int, deadline: float) -> bytes:
        while len(self._read) < n:
            self._arm(deadline)
            try:
                part = self.sock.recv(min(max(n - len(self._read), CHUNK), 4 * CHUNK))
            except TimeoutError as e:
                raise TimedOut from e
            except OSError as e:
                raise Closed from e
            if not part:
                raise Closed
            self._read += part
        taken = bytes(self._read[:n])
        del self._read[:n]
        return taken

    def waiting(self) -> bytes | None:
        """The first byte of what came unasked: None when nothing did, empty when the other end is gone."""
        if self._read:
            return bytes(self._read[:1])
        self.sock.setblocking(False)
        try:
            return self.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def close(self) -> None:
        self.sock.close()
