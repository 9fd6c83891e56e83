"""``gpu.jsonl``: samples of the GPUs of the server's host, or the reason there are none.

A sample is taken from NVML on the host, or it is what DCGM's exporter had told a Prometheus server. Which samples fall
into a run's windows is derived on reading (``at_unix_s``), never stored.
"""

from typing import Annotated, Literal

from pydantic import Field

from evidence.records import SCHEMA_VERSION, Count, Record, Seconds, Version

Ratio = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(ge=0)]


class GpuReading(Record):
    """One GPU at one instant. What the device or the driver does not tell is None, and ``missing`` says why by name."""

    index: Count  # as the driver numbers them, whatever CUDA_VISIBLE_DEVICES says
    name: str | None = None
    uuid: str | None = None
    memory_total_bytes: Count | None = None
    memory_used_bytes: Count | None = None  # with what the driver reserves (nvidia-smi leaves that out)
    utilisation_ratio: Ratio | None = None  # of the driver's last sampling period, a kernel ran
    memory_utilisation_ratio: Ratio | None = None  # of that period, device memory was read or written
    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    power_w: Rate | None = None
    power_limit_w: Rate | None = None
    energy_j: Rate | None = None  # since the driver was loaded: a counter
    temperature_celsius: float | None = None
    pcie_rx_bytes_per_s: Rate | None = None  # into the GPU, over 20 ms of the sample: a spot check, no total
    pcie_tx_bytes_per_s: Rate | None = None
    pcie_generation: Count | None = None  # of the link as it is now; an idle link may be slower
    pcie_width: Count | None = None
    nvlink_n_active: Count | None = None
    nvlink_rx_bytes: Count | None = None  # counters over all links
    nvlink_tx_bytes: Count | None = None
    nvlink_rx_bytes_per_s: Rate | None = None  # DCGM tells rates in place of counters
    nvlink_tx_bytes_per_s: Rate | None = None
    throttle_reasons: tuple[str, ...] | None = None  # () is a reading: nothing holds the clocks back
    missing: dict[str, str] = Field(default_factory=dict)


class GpuSample(Record):
    """One line of ``gpu.jsonl``. ``gpus`` is empty where there is no reading at all, and ``missing`` says why."""

    schema_version: Version = SCHEMA_VERSION
    run_id: str
    source: Literal["nvml", "dcgm"]
    host: str | None  # whose GPUs; None: not told
    at_unix_s: float  # the middle of the reading; for DCGM the instant Prometheus gives it
    at_monotonic_s: float | None  # of the sampling host; None for DCGM
    took_s: Seconds | None  # the reading is an interval as long as this
    interval_s: Seconds | None  # asked between samples
    gpus: tuple[GpuReading, ...]
    missing: str | None
