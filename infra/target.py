"""Where a server is: scheme, host, port and path prefix, parsed once and strictly from a base URL."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from infra.wire.http1 import request_bytes


class TargetError(ValueError):
    """A base URL that cannot be used. ``url`` is what was given; the message ends with what to write instead."""

    def __init__(self, url: str, why: str, advice: str) -> None:
        super().__init__(f"base URL {url!r}: {why}. {advice}")
        self.url = url


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A base URL in parts. ``prefix`` is empty or begins with a slash and ends without one."""

    scheme: Literal["http", "https"]
    host: str  # without brackets
    port: int
    prefix: str

    @classmethod
    def parse(cls, base_url: str) -> "Target":
        """Raises TargetError for all that is no ``http(s)://host[:port][/prefix]``."""
        if not base_url.isprintable() or any(c.isspace() for c in base_url):
            raise TargetError(base_url, "it holds white space or control characters", "Remove them")
        try:
            parts = urlsplit(base_url)
            port = parts.port
        except ValueError as error:
            raise TargetError(base_url, str(error), "Write http://HOST:PORT") from error
        if parts.scheme not in ("http", "https"):
            raise TargetError(base_url, "it does not begin with http:// or https://", "Write http://HOST:PORT")
        if not parts.hostname or port == 0:
            raise TargetError(base_url, "it names no host or no usable port", "Write http://HOST:PORT")
        if parts.username is not None or parts.password is not None:
            # The message must not repeat the secret.
            shown = f"{parts.scheme}://***@{parts.hostname}"
            raise TargetError(shown, "it carries credentials", "Give the key in OPENAI_API_KEY or as a header")
        if parts.query or parts.fragment:
            raise TargetError(base_url, "it carries a query or a fragment", "End it with the path prefix")
        prefix = parts.path.rstrip("/")
        if prefix.endswith("/v1"):
            raise TargetError(base_url, "it ends with /v1", "Leave /v1 away: it is added to every path")
        if not prefix.isascii():
            raise TargetError(base_url, "its path is not ASCII", "Write the path percent-encoded")
        scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
        return cls(
            scheme=scheme,
            host=parts.hostname.replace("%25", "%"),
            port=port or (443 if scheme == "https" else 80),
            prefix=prefix,
        )

    @property
    def host_header(self) -> str:
        """What stands in ``Host``: an IPv6 address in brackets and without its zone, the port unless the default."""
        name = self.host.partition("%")[0]
        try:
            if ipaddress.ip_address(name).version == 6:
                name = f"[{name}]"
        except ValueError:
            name = name if name.isascii() else name.encode("idna").decode("ascii")
        return name if self.port == (443 if self.scheme == "https" else 80) else f"{name}:{self.port}"

    def path(self, path: str) -> str:
        """The request target of a path such as ``/v1/models``."""
        return f"{self.prefix}{path}"

    def url(self, path: str) -> str:
        """The whole URL of a path."""
        return f"{self.scheme}://{self.host_header}{self.prefix}{path}"

    def request(self, method: str, path: str, headers: Iterable[tuple[str, str]] = (), body: bytes = b"") -> bytes:
        """A request to this server as bytes; see ``http1.request_bytes``."""
        return request_bytes(method, self.path(path), self.host_header, headers, body)
