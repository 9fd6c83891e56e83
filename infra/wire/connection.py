"""A connection without a loop: whoever has a loop asks for ``fileno`` and calls ``on_readable`` when it can be read.

The hot path is one ``recvmsg`` a readiness, one tuple, and a glance for the end. It never decodes and never reads until
EAGAIN: a second call would find nothing most of the time and costs half of the first, and with a level-triggered loop
whatever came meanwhile makes the descriptor readable again. Reading promptly matters more than reading much, because a
read that spans several packets learns the stamp of the last one only.

The socket is handed in, non-blocking, with kernel receive stamps switched on where there are any; the time of a call is
handed in too. TLS is a layer handed in: the ciphertext is read here, so the stamps are the kernel's, and plaintext
carries the stamp of the ciphertext that completed it.
"""

from collections.abc import Sequence
from struct import Struct, iter_unpack
from typing import Any, Protocol

from infra.wire.ending import EndFinder
from infra.wire.http1 import WireError
from infra.wire.stamps import Ended, Segment

# At 128 KiB and more the C library maps and unmaps the buffer at each call, which costs four times the read itself.
READ_BYTES = 64 * 1024
# A long answer is some MB. An endless one would fill the memory: beyond this the connection ends as "reset", its fault
# says why, and what came up to there is kept.
LIMIT_BYTES = 64 * 1024 * 1024  # of one response, in plaintext
ANCILLARY_BYTES = 64  # one control message with a timespec takes 32
SOL_SOCKET = 1
SCM_TIMESTAMPNS = 35  # Linux; the socket module has no name for it
_TIMESPEC = Struct("@qq")  # on 64-bit Linux: seconds, nanoseconds

Raw = tuple[bytes | None, int, bytes]  # one read: the kernel's stamp as it came, ours (monotonic ns), the bytes


class SocketLike(Protocol):
    """What is used of a non-blocking socket."""

    def fileno(self) -> int: ...
    def recvmsg(self, bufsize: int, ancbufsize: int, /) -> tuple[bytes, list[tuple[int, int, bytes]], int, Any]: ...
    def send(self, data: memoryview, /) -> int: ...
    def close(self) -> None: ...


class TlsLayer(Protocol):
    """Encryption between two buffers of bytes; errors are OSError, as the standard library's are."""

    closed: bool  # the peer said that nothing more will come

    def encrypt(self, plain: bytes) -> bytes:
        """Ciphertext to send."""

    def decrypt(self, cipher: bytes) -> bytes:
        """Plaintext that is whole now; empty while a record is incomplete."""

    def outgoing(self) -> bytes:
        """Ciphertext that reading brought about (a key update), to be sent; empty most of the time."""


class Connection:
    """One HTTP connection, one response at a time: ``start``, ``on_readable`` until it says True, ``reset``."""

    def __init__(self, sock: SocketLike, *, tls: TlsLayer | None = None) -> None:
        self._sock = sock
        self._recvmsg = sock.recvmsg
        self._tls = tls
        self._out = memoryview(b"")
        self.raw: list[Raw] = []  # of the response under way; for reading only
        self._n_bytes = 0  # in raw
        self._ending = EndFinder()
        self._started = False
        self.n_requests = 0
        self.ended: Ended | None = None
        self.ended_at_ns: int | None = None  # monotonic; the instant of the call that found the end
        self.fault: str | None = None  # the system's or TLS's own words where the connection broke

    def fileno(self) -> int:
        return self._sock.fileno()

    def prepare(self, request: bytes, method: str = "POST") -> None:
        """Takes a request (and encrypts it), without sending: what it costs comes before t0."""
        if self._started or self._out:
            raise WireError("a request is under way on this connection: call reset() once its response has ended")
        self._started = True
        self.n_requests += 1
        if method != "POST":
            self._ending = EndFinder(method)
        self._out = memoryview(request if self._tls is None else self._tls.encrypt(request))

    def start(self, request: bytes | None = None, method: str = "POST") -> None:
        """Begins to send what was prepared, or ``request``; take t0 just before.

        What cannot be sent at once is left to ``on_writable``.
        """
        if request is not None:
            self.prepare(request, method)
        self.on_writable()

    @property
    def want_write(self) -> bool:
        """Whether ``on_writable`` should be called when the descriptor can be written."""
        return len(self._out) > 0

    def on_writable(self) -> bool:
        """Sends what the socket takes; True when nothing is left.

        A broken pipe is no end: a server that refuses a request early has often answered before it closed.
        """
        try:
            while self._out:
                self._out = self._out[self._sock.send(self._out) :]
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.fault = f"sending: {error}"
            self._out = memoryview(b"")
        return True

    def on_readable(self, now_monotonic_ns: int) -> bool:
        """Reads once; True when the response is complete or nothing more can come (``ended`` says which)."""
        if self.ended is not None:
            return True
        try:
            data, ancillary, _, _ = self._recvmsg(READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self.fault = f"receiving: {error}"
            return self._end("reset", now_monotonic_ns)
        if not data:
            return self._end("eof", now_monotonic_ns)
        stamp = None
        for level, kind, payload in ancillary:
            if kind == SCM_TIMESTAMPNS and level == SOL_SOCKET:
                stamp = payload
        if self._tls is not None:
            return self._on_ciphertext(data, stamp, now_monotonic_ns)
        return self._took(stamp, data, now_monotonic_ns)

    def give_up(self, ended: Ended, now_monotonic_ns: int) -> None:
        """The caller's own end: a time limit or a cancellation. Without effect once the response has ended."""
        if self.ended is None:
            self._end(ended, now_monotonic_ns)

    @property
    def segments(self) -> Sequence[Segment]:
        """All that was received of this response, in order. Made anew at each call: ask once, at the end."""
        stamps = [stamp for stamp, _, _ in self.raw]
        if any(stamp is None or len(stamp) != _TIMESPEC.size for stamp in stamps):
            return [Segment(unix_ns(stamp), user, data) for stamp, user, data in self.raw]
        times = iter_unpack("@qq", b"".join(stamps))  # type: ignore[arg-type]  # none of them is None
        return [
            Segment(seconds * 1_000_000_000 + nanoseconds, user, data)
            for (seconds, nanoseconds), (_, user, data) in zip(times, self.raw, strict=True)
        ]

    @property
    def n_segments(self) -> int:
        return len(self.raw)

    @property
    def reusable(self) -> bool:
        """Whether the ended response leaves the connection free for the next request, by its framing and its head."""
        return self.ended == "complete" and not self._out and self._ending.reusable

    @property
    def last_received_ns(self) -> int | None:
        """Monotonic instant of the last read that brought bytes of this response; None before the first."""
        return self.raw[-1][1] if self.raw else None

    def stale(self) -> bool:
        """Whether an idle connection can no longer carry a request: the server closed it, or sent something unasked."""
        try:
            data, _, _, _ = self._recvmsg(READ_BYTES, ANCILLARY_BYTES)
            if not data or self._tls is None:
                return True
            plain = self._tls.decrypt(data)  # session tickets come unasked and are harmless
            return plain != b"" or self._tls.closed
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    def reset(self) -> None:
        """Ready for the next request; whether the server allows one, ``reusable`` says."""
        if self.ended != "complete" or self._out:
            raise WireError(f"the connection cannot be used again (it ended {self.ended!r}): dial another")
        self.raw = []
        self._n_bytes = 0
        self._ending = EndFinder()
        self._started = False
        self.ended = self.ended_at_ns = self.fault = None

    def close(self) -> None:
        self._sock.close()

    def _on_ciphertext(self, data: bytes, stamp: bytes | None, now_monotonic_ns: int) -> bool:
        tls = self._tls
        if tls is None:
            raise WireError("ciphertext without TLS")
        try:
            plain = tls.decrypt(data)
            answer = tls.outgoing()
        except OSError as error:
            self.fault = f"TLS: {error}"
            return self._end("reset", now_monotonic_ns)
        if answer:
            self._out = memoryview(bytes(self._out) + answer)
            self.on_writable()
        if plain and self._took(stamp, plain, now_monotonic_ns):
            return True
        return tls.closed and self._end("eof", now_monotonic_ns)

    def _took(self, stamp: bytes | None, data: bytes, now_monotonic_ns: int) -> bool:
        self.raw.append((stamp, now_monotonic_ns, data))
        self._n_bytes += len(data)
        if self._ending.feed(data):
            return self._end("complete", now_monotonic_ns)
        if self._n_bytes > LIMIT_BYTES:
            self.fault = f"more than {LIMIT_BYTES} bytes in one response"
            return self._end("reset", now_monotonic_ns)
        return False

    def _end(self, ended: Ended, now_monotonic_ns: int) -> bool:
        self.ended, self.ended_at_ns = ended, now_monotonic_ns
        return True


def unix_ns(stamp: bytes | None) -> int | None:
    """A kernel stamp as it came, in nanoseconds of Unix time; None where there is none."""
    if stamp is None or len(stamp) < _TIMESPEC.size:
        return None
    seconds, nanoseconds = _TIMESPEC.unpack_from(stamp)
    return int(seconds * 1_000_000_000 + nanoseconds)
