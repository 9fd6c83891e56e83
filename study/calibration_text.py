"""A calibration in words: the table that ``study calibrate`` prints."""

from evidence.calibration_records import Calibration, Error
from evidence.quantiles import FLOORS


def lines(made: Calibration) -> list[str]:
    """The record in words."""
    total = "-" if made.total_chunks_per_s is None else f"{made.total_chunks_per_s:.0f}"
    out = [
        f"{made.n_streams} streams of {made.chunks_per_s:g} chunks/s ({total} chunks/s in all), {made.transport} "
        f"transport, {made.n_requests} requests compared",
        f"{'metric':18} {'n':>8} {'bias':>12} {'|error| p50':>12} {'p99':>12} {'largest':>12}   floor",
    ]
    for name, error in made.errors.items():
        out.append(f"{name:18} {error.n:8} {_values(name, error)}   {_floor(made, name)}")
    if any(error.p99 is None for error in made.errors.values()):
        out.append(f"p99 -: fewer than {FLOORS[99]} values bear none")
    shared = made.client["coalesced_ratio"]
    out.append(f"coalesced chunks: {'-' if shared is None else f'{shared:.2%}'}")
    return out


def _values(name: str, error: Error) -> str:
    shown = _rate if name.endswith("per_s") else time_text
    values = (error.bias, error.p50, error.p99, error.largest)
    return " ".join(("-" if value is None else shown(value)).rjust(12) for value in values)


def time_text(value_s: float) -> str:
    """Seconds as 0.64 us, 209 us, 21.25 ms."""
    value_us = value_s * 1e6
    if abs(value_us) >= 10_000:
        return f"{value_us / 1000:.2f} ms"
    return f"{value_us:.0f} us" if abs(value_us) >= 100 else f"{value_us:.2f} us"


def _rate(value_per_s: float) -> str:
    return f"{value_per_s:.2f} /s" if abs(value_per_s) >= 10 else f"{value_per_s:.4f} /s"


def _floor(made: Calibration, name: str) -> str:
    floor_s = made.client_floor_s.get(name)
    if floor_s is None:
        return "- (follows from tpot_s)" if name == "decode_tok_per_s" else "- (no value)"
    return f"{time_text(floor_s)} ({made.floor_quantile[name]})"
