"""The server's side of a sweep as tables: queue, cache, acceptance by level; memory and capacity by launch."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis.compare_tables import percent
from analysis.sweep_cells import Cells, Grid
from analysis.sweep_server import Reading, server_readings
from analysis.sweep_tables import launches_named, named
from analysis.tables import ms, number

Fields = Mapping[str, Any]
GIB = 2**30


def server(levels: Sequence[Fields], cells: Cells) -> Grid:
    """Queue, preemptions, cache in use against its capacity, acceptance, cached prompts, memory by the driver."""
    rows = []
    launch_of = launches_named(levels)
    for place, one in enumerate(levels):
        for nth, run in enumerate(one["launches"]):
            path, found = f"levels.{place}.launches.{nth}", run["acceptance"]
            read = server_readings(run["server"])
            rate, steps, why = found.get("rate"), found.get("tokens_per_target_step"), found.get("why")
            memory, cached = run["driver_bytes"], run["cached_share"]
            rows.append(
                [
                    cells.level(one),
                    launch_of(one, run),
                    _read(read["queue_s"], cells, ms, path),
                    _read(read["waiting_max"], cells, _whole, path),
                    _read(read["preemptions"], cells, _whole, path),
                    _read(read["kv_used"], cells, _whole, path),
                    _read(read["kv_share"], cells, percent, path),
                    str(found.get("state") or "not told"),
                    cells.dash(why) if rate is None else cells.number(rate, number(rate, 3), f"{path}.acceptance.rate"),
                    cells.dash((found.get("reasons") or {}).get("tokens_per_target_step") or why)
                    if steps is None
                    else cells.number(steps, number(steps, 2), f"{path}.acceptance.tokens_per_target_step"),
                    cells.dash("not every answer tells its cached tokens")
                    if cached is None
                    else cells.number(cached, percent(cached), f"{path}.cached_share"),
                    cells.dash(run["why"].get("driver_bytes"))
                    if memory is None
                    else cells.number(memory, number(memory / GIB, 1), f"{path}.driver_bytes"),
                ]
            )
    titles = ["level", "arm", "queue ms", "wait", "preempt", "KV tok", "KV", "accept", "rate", "tok/step", "cached"]
    return Grid(titles=[*titles, "GiB"], rows=rows, left=(0, 1, 7))


def capacity(found: Sequence[Fields], cells: Cells) -> Grid:
    """Logical bytes, the engine's own capacity and the driver's readings, side by side and apart."""
    rows = []
    name_of = named(found, 16)
    for place, one in enumerate(found):
        path, kv, whys = f"capacity.{place}", one["kv_cache"], one["why"]
        drafts = None if one["draft_bytes"] is None else f"and {one['draft_bytes'] / GIB:.2f} GiB for the draft's"

        def size(name: str, digits: int = 2, mark: str | None = None, one: Fields = one, path: str = path) -> str:
            value = one[name]
            if value is None:
                why = one["why"].get("driver_most_bytes" if name.startswith("driver") else name)
                return cells.dash(why)
            return cells.number(value, number(value / GIB, digits), f"{path}.{name}", mark)

        rows.append(
            [
                name_of(one),
                str(one["pair"]),
                _counted(kv["bytes_per_token"], kv["why"], cells, f"{path}.kv_cache.bytes_per_token"),
                _counted(one["tokens"], whys.get("tokens"), cells, f"{path}.tokens"),
                size("logical_bytes"),
                size("engine_bytes", mark=drafts),
                size("driver_first_bytes", 1),
                size("driver_most_bytes", 1),
                one["setting"] or cells.dash("no part of memory is on record"),
            ]
        )
    titles = ["arm", "pair", "B/token", "KV tokens", "logical GiB", "engine GiB", "driver GiB", "most", "set"]
    return Grid(titles=titles, rows=rows, left=(0, 8))


def _counted(value: float | None, why: str | None, cells: Cells, path: str) -> str:
    return cells.dash(why) if value is None else cells.number(value, _whole(value), path)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _read(reading: Reading, cells: Cells, shown: Callable[[float], str], path: str) -> str:
    if reading.value is None:
        return cells.dash(reading.why)
    return cells.number(reading.value, shown(reading.value), f"{path}.server.{reading.path}")
