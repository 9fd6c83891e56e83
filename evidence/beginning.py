"""What stands in a run folder before the first request: a manifest without secrets, and the plan that it names."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from evidence.errors import EvidenceError
from evidence.layout import MANIFEST
from evidence.lines import canonical, first_fault
from evidence.records import Json, Manifest
from evidence.redact import KnownSecrets, redact_json, redact_text

_REDACTED_FIELDS = ("arm", "server", "model", "hardware", "calibration", "environment", "options", "request_extra")


def redacted_manifest(manifest: Manifest, path: Path) -> Manifest:
    """The manifest without secrets, whatever its maker left in."""
    changed: dict[str, Json] = {name: redact_json(getattr(manifest, name)) for name in _REDACTED_FIELDS}
    changed |= {
        name: None if (text := getattr(manifest, name)) is None else redact_text(text) for name in ("label", "note")
    }
    try:
        return Manifest.model_validate(manifest.model_dump(warnings=False) | changed)
    except ValidationError as error:
        what = f"does not meet its schema: {first_fault(error)}"
        remedy = "make it through its constructor with the types its schema names"
        raise EvidenceError(path / MANIFEST, what, remedy, writing=True) from error


def checked_plan(
    path: Path, manifest: Manifest, plan_lines: Iterable[BaseModel], secrets: KnownSecrets
) -> tuple[bytes, dict[str, dict[str, Json]]]:
    """The plan's bytes and its lines by id. Raises EvidenceError where it is not the plan the manifest names."""
    lines = [canonical(line) for line in plan_lines]
    fields = [json.loads(line) for line in lines]
    by_id = {str(one.get("plan_id", "")): one for one in fields}
    data = b"".join(lines)
    digest = hashlib.sha256(data).hexdigest()
    wrong = None
    if "" in by_id or len(by_id) != len(lines):
        wrong = "a plan id is missing or stands twice"
    elif len(lines) != manifest.n_planned:
        wrong = f"{len(lines)} lines, and the manifest says {manifest.n_planned}"
    elif digest != manifest.plan_sha256:
        wrong = f"its digest is {digest}, and the manifest says {manifest.plan_sha256}"
    elif (source := secrets.found_in(data)) is not None:
        what, remedy = (
            f"a prompt holds a key of this process: {source}",
            "take it out of the prompt, or use another key",
        )
        raise EvidenceError(path, what, remedy, writing=True)
    if wrong is not None:
        raise EvidenceError(path, wrong, "make manifest and plan from the same scenario and prompts", writing=True)
    return data, by_id
