"""TLS over a socket that stays ours: the standard library's engine between two memory buffers.

Kernel receive stamps belong to the socket, so the ciphertext is read from it by the connection itself, and only
decrypted here. Certificates are verified; ``SSL_CERT_FILE`` names a CA of one's own.
"""

import functools
import os
import ssl
import time
from collections.abc import Callable
from typing import Any, Literal

Direction = Literal["read", "write"]
Wait = Callable[[int, Direction, float], bool]  # descriptor, direction, timeout_s: False when the time has passed


class MemoryTls:
    """TLS between two memory buffers (``ssl.MemoryBIO``), so that the socket and its kernel stamps stay ours."""

    def __init__(self, context: ssl.SSLContext, server_hostname: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_hostname)
        self.closed = False

    def handshake(self, sock: Any, wait: Wait, deadline_s: float) -> None:
        """Completes the handshake over a non-blocking socket; raises OSError (ssl.SSLError, TimeoutError)."""
        while True:
            done = True
            try:
                self._ssl.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLError:
                _send_all(sock, self._outgoing.read(), wait, deadline_s)  # the alert tells the server why
                raise
            _send_all(sock, self._outgoing.read(), wait, deadline_s)
            if done:
                return
            if not wait(sock.fileno(), "read", deadline_s - time.monotonic()):
                raise TimeoutError("TLS handshake timed out")
            try:
                data = sock.recv(65536)
            except BlockingIOError:
                continue
            if not data:
                raise ConnectionResetError("the server closed the connection during the TLS handshake")
            self._incoming.write(data)

    def encrypt(self, plain: bytes) -> bytes:
        self._ssl.write(plain)
        return self._outgoing.read()

    def decrypt(self, cipher: bytes) -> bytes:
        self._incoming.write(cipher)
        pieces: list[bytes] = []
        try:
            while piece := self._ssl.read(65536):
                pieces.append(piece)
            self.closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed = True
        return b"".join(pieces)

    def outgoing(self) -> bytes:
        return self._outgoing.read()

    @property
    def version(self) -> str | None:
        return self._ssl.version()


def tls_context(ca_file: str | None = None) -> ssl.SSLContext:
    """A verifying context: the CA file given, else ``SSL_CERT_FILE`` and the system's. Made once, it costs 50 ms."""
    return _context(ca_file, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))


@functools.cache
def _context(ca_file: str | None, cert_file: str | None, cert_dir: str | None) -> ssl.SSLContext:
    del cert_file, cert_dir  # OpenSSL reads them itself; they are here so that a change makes a new context
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _send_all(sock: Any, data: bytes, wait: Wait, deadline_s: float) -> None:
    left = memoryview(data)
    while left:
        try:
            left = left[sock.send(left) :]
        except BlockingIOError:
            if not wait(sock.fileno(), "write", deadline_s - time.monotonic()):
                raise TimeoutError("sending timed out during the TLS handshake")
