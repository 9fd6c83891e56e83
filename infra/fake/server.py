"""The fake engine's loop: one thread, raw non-blocking sockets, absolute deadlines in one heap.

Waiting is done by select(2) on the selector's own descriptor: epoll_wait counts whole milliseconds, select
microseconds; with ``spin_ns`` the last stretch before a deadline is spent polling. A send that the socket does not take
whole delays the stream's later sends (they keep their deadlines and their stamps say when they were made).
"""

import contextlib
import heapq
import os
import select
import selectors
import socket
import ssl
import struct
import time
from collections import deque
from typing import NoReturn

from infra.fake.answer import Answer
from infra.fake.routes import Engine, Incoming
from infra.fake.script import End, Script, Send

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE
MAX_HEADER_BYTES = 1 << 20
WAITS: Script = iter(())  # of a peer whose request was read and has no slot yet


class Peer:
    """One client connection."""

    __slots__ = ("answer", "end", "handshaking", "inbuf", "once", "out", "script", "sock", "step")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.handshaking = isinstance(sock, ssl.SSLSocket)
        self.inbuf = bytearray()
        self.out = b""
        self.script: Script | None = None
        self.step: Send | None = None
        self.answer: Answer | None = None
        self.once = False  # the client asked for "Connection: close"
        self.end: End | None = None  # what is to follow once ``out`` has gone


def take_request(buffer: bytearray, received_ns: int) -> Incoming | None:
    """Cut one whole request off the buffer; None while it is not all there. Raises ConnectionError on rubbish."""
    end = buffer.find(b"\r\n\r\n")
    if end < 0:
        if len(buffer) > MAX_HEADER_BYTES:
            raise ConnectionError(f"{len(buffer)} bytes without an end of headers")
        return None
    first, *lines = bytes(buffer[:end]).decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    words = first.split(" ")
    length = headers.get("content-length", "0")
    if len(words) != 3 or not length.isdigit():
        raise ConnectionError(f"{first!r} is no request that can be read")
    total = end + 4 + int(length)
    if len(buffer) < total:
        return None
    body = bytes(buffer[end + 4 : total])
    del buffer[:total]
    return Incoming(words[0], words[1], headers, body, received_ns)


class Loop:
    """Serves ``engine`` on ``listener`` until something raises SystemExit."""

    def __init__(
        self,
        engine: Engine,
        listener: socket.socket,
        *,
        spin_ns: int = 0,
        accept_delay_s: float = 0.0,
        tls: ssl.SSLContext | None = None,
        watched_fd: int | None = None,
    ) -> None:
        self.engine = engine
        self.listener = listener
        self.spin_ns = spin_ns
        self.accept_delay_ns = round(accept_delay_s * 1e9)
        self.tls = tls
        self.heap: list[tuple[int, int, Peer | None, Send | None]] = []
        self.n_pushed = 0
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, READ)
        if watched_fd is not None:
            self.selector.register(watched_fd, READ, "watched")

    def serve(self) -> NoReturn:
        parent = os.getppid()
        next_look_ns = 0
        while True:
            now_ns = time.monotonic_ns()
            while self.heap and self.heap[0][0] <= now_ns:
                _, _, peer, step = heapq.heappop(self.heap)
                if peer is None:
                    self._accept()
                elif peer.step is step and step is not None:
                    self._play(peer, step)
            if now_ns >= next_look_ns:
                next_look_ns = now_ns + 1_000_000_000
                if os.getppid() != parent:
                    raise SystemExit(0)
            self._poll(next_look_ns)

    def _poll(self, latest_ns: int) -> None:
        due_ns = min(self.heap[0][0], latest_ns) if self.heap else latest_ns
        wait_ns = max(due_ns - self.spin_ns - time.monotonic_ns(), 0)
        if not select.select([self.selector.fileno()], [], [], wait_ns / 1e9)[0]:
            return
        for key, mask in self.selector.select(0):
            if key.data == "watched":
                if not os.read(key.fd, 4096):
                    raise SystemExit(0)
            elif isinstance(key.data, Peer):
                self._on_ready(key.data, mask)
            elif self.accept_delay_ns:
                self.selector.unregister(self.listener)
                self._push(time.monotonic_ns() + self.accept_delay_ns, None, None)
            else:
                self._accept()

    def _push(self, due_ns: int, peer: Peer | None, step: Send | None) -> None:
        self.n_pushed += 1
        heapq.heappush(self.heap, (due_ns, self.n_pushed, peer, step))

    def _accept(self) -> None:
        if self.accept_delay_ns:
            self.selector.register(self.listener, READ)
        while True:
            try:
                sock, _ = self.listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            self.selector.register(sock, READ, Peer(sock))

    def _on_ready(self, peer: Peer, mask: int) -> None:
        try:
            if isinstance(peer.sock, ssl.SSLSocket) and peer.handshaking:
                peer.sock.do_handshake()
                peer.handshaking = False
            if mask & WRITE and peer.out:
                self._drain(peer)
            if mask & READ and peer.sock.fileno() >= 0:
                self._read(peer)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:  # the peer went away, or its TLS failed
            self._drop(peer)

    def _read(self, peer: Peer) -> None:
        while True:
            data = peer.sock.recv(1 << 18)
            received_ns = time.monotonic_ns()
            if not data:
                self._drop(peer)
                return
            peer.inbuf += data
            if peer.script is None:
                self._start(peer, received_ns)
            if not isinstance(peer.sock, ssl.SSLSocket):
                return

    def _start(self, peer: Peer, received_ns: int) -> None:
        """Begin the answer to the next request in the buffer, once it is there whole."""
        request = take_request(peer.inbuf, received_ns)
        if request is None:
            return
        peer.once = request.headers.get("connection", "").lower() == "close"
        if self.engine.generates(request) and self.engine.is_full():
            peer.script = WAITS
            self.engine.waiting.append((peer, request))
            return
        self._begin(peer, request)

    def _begin(self, peer: Peer, request: Incoming) -> None:
        peer.script, peer.answer = self.engine.answer(request, time.monotonic_ns() if peer.script is WAITS else None)
        self._advance(peer)

    def _fill_slots(self) -> None:
        """Whoever has waited longest begins, as long as there is a slot."""
        while self.engine.waiting and not self.engine.is_full():
            peer, request = self.engine.waiting.popleft()
            self._begin(peer, request)

    def _play(self, peer: Peer, step: Send) -> None:
        data = step.make(time.monotonic_ns())
        try:
            n_sent = peer.sock.send(data) if data else 0
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            n_sent = 0
        except OSError:
            self._drop(peer)
            return
        if n_sent < len(data):
            peer.out = data[n_sent:]
            self.selector.modify(peer.sock, READ | WRITE, peer)
        self._advance(peer)

    def _drain(self, peer: Peer) -> None:
        peer.out = peer.out[peer.sock.send(peer.out) :]
        if peer.out:
            return
        self.selector.modify(peer.sock, READ, peer)
        if peer.step is not None:
            self._push(peer.step.due_ns, peer, peer.step)
        elif peer.end is not None:
            self._finish(peer, peer.end)

    def _advance(self, peer: Peer) -> None:
        """Prepare the script's next step; it waits for its deadline, and for the bytes before it to have gone."""
        assert peer.script is not None
        following = next(peer.script)
        if isinstance(following, Send):
            peer.step = following
            if not peer.out:
                self._push(following.due_ns, peer, following)
            return
        peer.step = None
        peer.end = following
        if not peer.out:
            self._finish(peer, following)

    def _finish(self, peer: Peer, end: End) -> None:
        if end is End.DIE:
            os._exit(70)
        peer.end = None
        if end is End.HANG:  # the script stays, so that nothing more is answered
            return
        self._release(peer)
        peer.script = None
        if end is End.KEEP and not peer.once:
            self._start(peer, time.monotonic_ns())
            return
        if end is End.RESET:
            peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif isinstance(peer.sock, ssl.SSLSocket):
            with contextlib.suppress(OSError):  # close_notify; its answer is not waited for
                peer.sock.unwrap()
        self._drop(peer)

    def _release(self, peer: Peer) -> None:
        if peer.answer is not None:
            self.engine.release(peer.answer, time.monotonic_ns())
            peer.answer = None
            self._fill_slots()

    def _drop(self, peer: Peer) -> None:
        if peer.script is WAITS:
            self.engine.waiting = deque(one for one in self.engine.waiting if one[0] is not peer)
        self._release(peer)
        peer.script = peer.step = None
        self.selector.unregister(peer.sock)
        peer.sock.close()
