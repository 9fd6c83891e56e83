"""A container image's reference, and its digest as the registry gives it: SHA-256 of the manifest's own bytes."""

import hashlib
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass

DEFAULT_HOST = "docker.io"
_API_HOSTS = {DEFAULT_HOST: "registry-1.docker.io"}
_ACCEPT = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_REFERENCE = re.compile(
    r"(?:(?P<host>[a-z0-9.-]+(?:\.[a-z0-9.-]+|:\d+|(?<=^localhost))(?::\d+)?)/)?"
    r"(?P<path>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*):(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127})"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_MOVING_TAGS = frozenset({"latest", "main", "master", "nightly", "stable", "edge", "dev", "server", "full", "light"})
_LIMIT_S = 20.0
_MOST_BYTES = 4 * 1024 * 1024


class ImageError(Exception):
    """An image reference that is none, or a digest nobody gave. ``why`` is the reason alone."""

    def __init__(self, image: str, why: str) -> None:
        self.image = image
        self.why = why
        super().__init__(f"{image}: {why}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """``written`` is as it stood; ``digest`` None where none stands there."""

    written: str
    host: str
    path: str
    tag: str
    digest: str | None

    @property
    def tagged(self) -> str:
        """Name and tag without the digest, as written."""
        return self.written.partition("@")[0]


def parse_reference(text: str) -> Reference:
    """Raises ImageError for anything but NAME:TAG, with a tag that names a version, and a digest or none."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise ImageError(text, "not NAME:TAG: pin the image by a version")
    if match["tag"] in _MOVING_TAGS:
        raise ImageError(text, f"the tag {match['tag']!r} names no version: pin the image by one")
    host, path = match["host"] or DEFAULT_HOST, match["path"]
    if host == DEFAULT_HOST and "/" not in path:
        path = f"library/{path}"
    return Reference(written=text, host=host, path=path, tag=match["tag"], digest=match["digest"])


def manifest_digest(reference: Reference) -> str:
    """The digest of what the tag names now. Raises ImageError where the registry gives none, or contradicts itself."""
    host = _API_HOSTS.get(reference.host, reference.host)
    scheme = "http" if host.split(":")[0] in ("localhost", "127.0.0.1") else "https"
    url = f"{scheme}://{host}/v2/{reference.path}/manifests/{reference.tag}"
    try:
        body, said = _get(url, reference)
    except urllib.error.HTTPError as error:
        raise ImageError(reference.tagged, f"{host}: HTTP {error.code}") from error
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "reason", error)
        raise ImageError(reference.tagged, f"{host} cannot be asked ({reason})") from error
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if said is not None and said != found:
        raise ImageError(reference.tagged, f"{host} says {said}, and its manifest has {found}")
    return found


def _get(url: str, reference: Reference) -> tuple[bytes, str | None]:
    try:
        return _fetch(url, None)
    except urllib.error.HTTPError as error:
        challenge = error.headers.get("WWW-Authenticate", "")
        if error.code != 401 or not challenge.lower().startswith("bearer "):
            raise
    return _fetch(url, _token(challenge, reference))


def _fetch(url: str, token: str | None) -> tuple[bytes, str | None]:
    request = urllib.request.Request(url, headers={"Accept": _ACCEPT})
    if token is not None:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=_LIMIT_S) as answer:
        body: bytes = answer.read(_MOST_BYTES)
        said: str | None = answer.headers.get("Docker-Content-Digest")
        return body, said


def _token(challenge: str, reference: Reference) -> str:
    """An anonymous token, from where the registry says one is had."""
    fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    asked = {"service": fields.get("service", ""), "scope": f"repository:{reference.path}:pull"}
    url = f"{fields['realm']}?{urllib.parse.urlencode(asked)}"
    with urllib.request.urlopen(url, timeout=_LIMIT_S) as answer:
        said = json.load(answer)
    return str(said.get("token") or said["access_token"])
