"""Error objects as servers write them, and what a fault on the wire looks like to a caller."""

import json
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

MAX_BODY_BYTES = 64 * 1024  # of what came in place of a stream
MAX_DEPTH = 64  # of lists and objects in each other; a record's own writer stops somewhere above 100

# Finish reasons that are no success.
FINISH_ERRORS = frozenset({"error", "abort", "aborted", "cancelled", "content_filter", "repetition"})


@dataclass(frozen=True, kw_only=True, slots=True)
class WireFault:
    """What went wrong, verbatim where the server said it; the fields are those of ``evidence.records.ErrorFacts``."""

    kind: str
    message: str
    http_status: int | None = None
    body: str | None = None


class NotJson(ValueError):
    """Bytes that are no JSON, or JSON no record could keep (NaN, infinity, nesting deeper than MAX_DEPTH)."""


def read_json(payload: bytes) -> Any:
    """Strict JSON of UTF-8 bytes; bytes that are no UTF-8 become U+FFFD, so that the rest can be read.

    Raises NotJson.
    """
    try:
        value = _quickly(payload)
    except ValueError:  # not JSON, or nothing that the quick reader takes: the slow one decides, and says why
        value = _slowly(payload)
    if payload.count(b"[") + payload.count(b"{") > MAX_DEPTH and _deeper(value):
        raise NotJson(f"nested deeper than {MAX_DEPTH} levels")
    return value


def _quickly(payload: bytes) -> Any:
    shape = payload.translate(_SHAPE)
    if b"0e000" in shape or _MANY_DIGITS in shape:
        raise ValueError("what may be a number too large")
    return from_json(payload, allow_inf_nan=False)


def _slowly(payload: bytes) -> Any:
    try:
        return _DECODER.decode(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from error


def read_error(value: Any) -> tuple[str, str] | None:
    """(kind, message) when this JSON value is an error as servers send it, else None.

    Seen shapes: ``{"error": {"message", "type", "code"}}``, ``{"error": "text"}``, ``{"object": "error", "message"}``,
    ``{"detail"}``. A null, false or empty ``error`` is none.
    """
    if not isinstance(value, dict):
        return None
    error = value.get("error")
    if error is not None and error is not False and error not in ("", {}):
        return _kind_and_message(error)
    if value.get("object") == "error":
        return _kind_and_message(value)
    if value.get("detail") and "choices" not in value:
        return "error", _as_text(value["detail"])
    return None


def read_error_body(body: bytes) -> tuple[str, str] | None:
    """The same of a whole body, or None where it is no JSON error."""
    try:
        return read_error(read_json(body))
    except NotJson:
        return None


def body_text(body: bytes) -> str:
    """At most 64 KiB of a body as text."""
    return body[:MAX_BODY_BYTES].decode("utf-8", "replace")


def _kind_and_message(error: Any) -> tuple[str, str]:
    if not isinstance(error, dict):
        return "error", _as_text(error)
    kind = error.get("type") or error.get("code") or "error"
    message = error.get("message")
    return str(kind), _as_text(message if message else error)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _deeper(value: Any) -> bool:
    """Whether lists and objects stand in each other more than MAX_DEPTH deep: level by level, without recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for holder in level:
            if isinstance(holder, dict):
                inner.extend(holder.values())
            elif isinstance(holder, list):
                inner.extend(holder)
        level = [one for one in inner if isinstance(one, dict | list)]
        if not level:
            return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{digits} is too large for a number")
    return value


# What could overflow a double has an exponent of three digits, or hundreds of digits. Text like that is read slowly.
_SHAPE = bytes.maketrans(b"123456789+E", b"0000000000e")  # with a plus sign as one more digit
_MANY_DIGITS = b"0" * 200
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
