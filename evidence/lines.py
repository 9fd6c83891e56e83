"""A record as one line of JSON, and lines back as records.

What is written is what reads back: a line is validated against its schema from the very bytes that go to the file, so a
record changed or made behind its schema's back is refused before it lands, and NaN never turns into null.
"""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from evidence.errors import EvidenceError, Problem
from evidence.marks import cut, is_stand_in
from evidence.records import SCHEMA_VERSION, Json, Record, Request, WireRef
from evidence.redact import KnownSecrets

R = TypeVar("R", bound=Record)
_NO_SECRETS = KnownSecrets()
_FIELD_NAMES: dict[frozenset[str], set[str]] = {}


class Located(NamedTuple, Generic[R]):
    """A record with the place it was read from."""

    file: str
    line: int
    record: R


class Encoded(NamedTuple):
    """A line ready to be written; ``changed`` says in words what had to be replaced in it, None when nothing was."""

    line: bytes
    changed: str | None


def encode(record: Record, path: Path, secrets: KnownSecrets = _NO_SECRETS) -> Encoded:
    """The record as one line ending in a newline, for the file at ``path``.

    Known secrets are replaced, and so are lone surrogates, which no UTF-8 file can hold. Raises EvidenceError for a
    record that does not meet its schema.
    """
    schema = type(record)
    changed = None
    unknown = sorted(set(vars(record)) - set(schema.model_fields))
    try:
        if unknown:
            raise ValueError(f"unknown field {unknown[0]!r}")
        fields = record.model_dump(warnings=False)
        text = _dumps(fields)
        if secrets.in_line(text):
            cleaned = _hashed_anew(_cleaned(schema, fields, secrets))
            changed = None if cleaned == fields else "a secret was replaced"
            text = _dumps(cleaned)
        try:
            line = text.encode()
        except UnicodeEncodeError:
            changed = "half a UTF-16 character was replaced by U+FFFD"
            fields = json.loads(text.encode("utf-8", "surrogatepass").decode("utf-8", "replace"))
            line = _dumps(_hashed_anew(fields)).encode()
        _validated(line, schema)
    except (ValidationError, PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise EvidenceError(
            path,
            f"a {schema.__name__} record does not meet its schema: {first_fault(error)}",
            "make it through its constructor with the types its schema names",
            value=repr(record)[:200],
            writing=True,
        ) from error
    return Encoded(line + b"\n", changed)


def canonical(line: BaseModel) -> bytes:
    """A plan line as canonical JSON: keys sorted, ASCII, no spaces, a newline. The plan's digest is over these."""
    text = json.dumps(line.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"


def decode(lines: Iterable[bytes], schema: type[R], file: str) -> tuple[list[Located[R]], list[Problem]]:
    """Every line as a record; a line that is none becomes a problem with its number."""
    records, problems = [], []
    for number, line in enumerate(lines, start=1):
        found = decode_one(line, schema, file, number)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            records.append(Located(file, number, found))
    return records, problems


def decode_one(data: bytes, schema: type[R], file: str, line: int | None = None) -> R | Problem:
    """One JSON document as a record, or why it is none: another version by its number, an unknown field by name."""
    try:
        record = _validated(data, schema)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            if one["loc"] == ("schema_version",) and one["type"] != "missing":
                detail = (
                    f"schema version {one['input']!r} of {schema.__name__}; this program reads version {SCHEMA_VERSION}"
                )
                return Problem("unknown_schema_version", detail, file, line)
        return Problem("schema_violation", f"{schema.__name__}: {first_fault(error)}", file, line)
    if "schema_version" not in record.model_fields_set:
        return Problem("schema_violation", f"{schema.__name__}: schema_version: is not there", file, line)
    _share_field_names(record)
    if isinstance(record, Request):
        for part in (record.connection, record.wire, record.error):
            if part is not None:
                _share_field_names(part)
    return record


def _validated(data: bytes, schema: type[R]) -> R:
    return _in_two(data, schema) or schema.model_validate_json(data)


def _in_two(data: bytes, schema: type[R]) -> R | None:
    """A request's line, its marks read apart from the rest; None where only the whole tells what it is, or why not."""
    apart = cut(data) if schema is Request else None
    try:
        record = None if apart is None else schema.model_validate_json(apart.line)
    except ValidationError:
        return None
    if apart is None or not isinstance(record, Request) or not is_stand_in(record.chunks):
        return None
    record.__dict__["chunks"] = apart.marks
    return record


def _share_field_names(record: BaseModel) -> None:
    """One set of field names for all records that were given the same fields: each would hold 2 KB of its own."""
    own = record.model_fields_set
    object.__setattr__(record, "__pydantic_fields_set__", _FIELD_NAMES.setdefault(frozenset(own), own))


def _dumps(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _cleaned(schema: type[BaseModel], fields: dict[str, Json], secrets: KnownSecrets) -> dict[str, Json]:
    """The fields with secrets replaced, but for names of fields and for what is our own word: outcome, ids, digests."""
    cleaned = dict(fields)
    for name, field in schema.model_fields.items():
        kinds = get_args(field.annotation) or (field.annotation,)
        nested = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        own = get_origin(field.annotation) is Literal or any(get_origin(kind) is Literal for kind in kinds)
        if own or name.endswith(("_id", "_sha256")) or nested == [WireRef]:
            continue
        if nested and isinstance(fields[name], dict):
            cleaned[name] = _cleaned(nested[0], fields[name], secrets)
        elif nested and isinstance(fields[name], list | tuple):
            cleaned[name] = type(fields[name])(_cleaned(nested[0], one, secrets) for one in fields[name])
        else:
            cleaned[name] = secrets.clean(fields[name])
    return cleaned


def _hashed_anew(fields: dict[str, Json]) -> dict[str, Json]:
    """The digest of an output belongs to the text on file."""
    if isinstance(fields.get("output_text"), str) and "output_sha256" in fields:
        return fields | {"output_sha256": hashlib.sha256(fields["output_text"].encode("utf-8", "replace")).hexdigest()}
    return fields


def first_fault(error: Exception) -> str:
    """The first thing that is wrong, with the value seen."""
    if not isinstance(error, ValidationError):
        return str(error)
    first, *more = error.errors(include_url=False)
    place = ".".join(str(part) for part in first["loc"]) or "the whole"
    seen = "" if first["type"] == "missing" else f", not {repr(first['input'])[:120]}"
    return f"{place}: {first['msg']}{seen}" + (f" (and {len(more)} more)" if more else "")
