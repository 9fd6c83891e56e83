"""Captured and rendered expositions, read as an engine's adapter reads them, with single values changed."""

from pathlib import Path
from typing import Any

from infra.engines.adapter import Adapter, adapter_for, read_snapshot
from infra.engines.window import Snapshot, Window

FIXTURES = Path(__file__).parent / "fixtures" / "exposition"
HEADERS = {"Content-Type": "text/plain; version=0.0.4"}


def text(name: str, *changes: tuple[str, str]) -> str:
    """A body by the start of its file's name; each change must hit."""
    (path,) = FIXTURES.glob(f"{name}*.prom")
    body = path.read_text()
    for old, new in changes:
        assert old in body, old
        body = body.replace(old, new)
    return body


def reader(engine: str, version: str | None = None) -> Adapter:
    found = adapter_for(engine, version)
    assert found is not None
    return found


def shot(adapter: Adapter, body: str) -> Snapshot:
    return read_snapshot(adapter, body, HEADERS)


def window(adapter: Adapter, before: str, after: str, *during: str) -> Window:
    return adapter.window(shot(adapter, before), shot(adapter, after), [shot(adapter, one) for one in during])


def numbers(found: Any, *names: str) -> tuple[Any, ...]:
    said = found.as_json()
    return tuple(said[name] for name in names)


def counter(name: str, **values: float) -> str:
    """A counter with series by label set: keys like ``dp_rank_0__tp_rank_1``."""
    lines = [f"# TYPE {name} counter"]
    for key, value in values.items():
        pairs = [part.rsplit("_", 1) for part in key.split("__")]
        labels = ",".join(f'{label}="{index}"' for label, index in pairs)
        lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def valued(body: str, series: str, change: Any) -> str:
    """The body with the value of every sample that begins so set, or changed by a function; one must be there."""
    lines, n = [], 0
    for line in body.split("\n"):
        if line.startswith(series):
            head, _, value = line.rpartition(" ")
            changed = change(float(value)) if callable(change) else change
            line, n = f"{head} {changed}", n + 1
        lines.append(line)
    assert n, series
    return "\n".join(lines)
