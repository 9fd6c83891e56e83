"""What NVIDIA's DCGM exporter told a Prometheus server, as GPU samples: for a server on another host.

Fields are those of the exporter's default and profiling lists (https://github.com/NVIDIA/dcgm-exporter, etc/*.csv). A
series whose name is not in the table is left alone; a value that is no number, or is DCGM's "blank" (above 2**62), is a
missing reading with that reason.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from evidence.gpu_records import GpuReading, GpuSample
from infra.telemetry.nvml import throttle_names

MIB = 1 << 20
# Series -> (field of a reading, factor to its unit).
FIELDS: dict[str, tuple[str, float]] = {
    "DCGM_FI_DEV_FB_TOTAL": ("memory_total_bytes", MIB),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", MIB),
    "DCGM_FI_DEV_GPU_UTIL": ("utilisation_ratio", 0.01),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("memory_utilisation_ratio", 0.01),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1),
    "DCGM_FI_DEV_MEM_CLOCK": ("memory_clock_mhz", 1),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_w", 1),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("energy_j", 0.001),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_celsius", 1),
    "DCGM_FI_PROF_PCIE_RX_BYTES": ("pcie_rx_bytes_per_s", 1),
    "DCGM_FI_PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", 1),
    "DCGM_FI_DEV_PCIE_RX_THROUGHPUT": ("pcie_rx_bytes_per_s", 1024),
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": ("pcie_tx_bytes_per_s", 1024),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_s", 1),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": ("nvlink_tx_bytes_per_s", 1),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("throttle_reasons", 1),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("throttle_reasons", 1),
}
_FREE = "DCGM_FI_DEV_FB_FREE"
_WHOLE = frozenset({"memory_total_bytes", "memory_used_bytes", "sm_clock_mhz", "memory_clock_mhz"})
_BLANK = 2.0**62
_TOLD = tuple(dict.fromkeys(name for name, _ in FIELDS.values()))
Samples = Iterable[tuple[float, str | float]]


def samples_of(
    series: Iterable[tuple[Mapping[str, str], Samples]], *, run_id: str, interval_s: float | None = None
) -> list[GpuSample]:
    """Samples in order of time from (labels with ``__name__``, [(unix_s, value)]), as a range query answers them.

    A sample is what one host's series hold at one instant. A series of a MIG slice is left out: it is no whole GPU.
    """
    held: dict[tuple[str, float], dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    labels_of: dict[tuple[str, int], Mapping[str, str]] = {}
    for labels, values in series:
        name, number = labels.get("__name__", ""), labels.get("gpu", "")
        if (name not in FIELDS and name != _FREE) or not number.isdigit() or labels.get("GPU_I_ID"):
            continue
        host = labels.get("Hostname") or labels.get("instance") or ""
        labels_of[host, int(number)] = labels
        for at_unix_s, value in values:
            held[host, float(at_unix_s)][int(number)][name] = value
    return [
        GpuSample(
            run_id=run_id,
            source="dcgm",
            host=host or None,
            at_unix_s=at_unix_s,
            at_monotonic_s=None,
            took_s=None,
            interval_s=interval_s,
            gpus=tuple(_reading(index, values, labels_of[host, index]) for index, values in sorted(gpus.items())),
            missing=None,
        )
        for (host, at_unix_s), gpus in sorted(held.items(), key=lambda pair: (pair[0][1], pair[0][0]))
    ]


def of_matrix(result: Iterable[Mapping[str, Any]], *, run_id: str, interval_s: float | None = None) -> list[GpuSample]:
    """From the ``result`` list of Prometheus' ``query_range`` (``metric``, ``values``)."""
    return samples_of(((one["metric"], one["values"]) for one in result), run_id=run_id, interval_s=interval_s)


def nothing(why: str, *, run_id: str, at_unix_s: float, interval_s: float | None = None) -> GpuSample:
    """The record that stands where Prometheus has no DCGM series."""
    return GpuSample(
        run_id=run_id,
        source="dcgm",
        host=None,
        at_unix_s=at_unix_s,
        at_monotonic_s=None,
        took_s=None,
        interval_s=interval_s,
        gpus=(),
        missing=why,
    )


def _reading(index: int, values: Mapping[str, Any], labels: Mapping[str, str]) -> GpuReading:
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name, value in sorted(values.items()):
        field, factor = FIELDS.get(name, ("", 1.0))
        if not field or field in found:
            continue
        number = _number(value)
        if number is None:
            missing[field] = f"{name} holds {value!r}"
        elif field == "throttle_reasons":
            found[field] = throttle_names(int(number))
        elif field.endswith("_ratio"):
            found[field] = min(1.0, number * factor)
        else:
            found[field] = round(number * factor) if field in _WHOLE else number * factor
    free = _number(values.get(_FREE))
    if "memory_total_bytes" not in found and free is not None and "memory_used_bytes" in found:
        found["memory_total_bytes"] = found["memory_used_bytes"] + round(free * MIB)
    missing |= {
        field: "the exporter does not tell it" for field in _TOLD if field not in found and field not in missing
    }
    missing = {field: why for field, why in missing.items() if field not in found}
    return GpuReading(index=index, name=labels.get("modelName"), uuid=labels.get("UUID"), missing=missing, **found)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and 0 <= number < _BLANK else None
