"""Reading GPUs through NVML, the driver's own library, by way of the package ``nvidia-ml-py`` (module ``pynvml``).

The package is imported when it is asked for; without it, without a driver or without a GPU there is a reason in words.
Each question may fail by itself (an older card, a virtual GPU, a container): the others are still answered, and the
reading says by name what was not. Asking for PCIe traffic takes the driver 20 ms for each direction and GPU (a reading
of one H200 took 45 to 53 ms), and what it answers is that window's traffic: a spot check, no total.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from evidence.gpu_records import GpuReading

# nvmlClocksEventReasons (nvml.h): what holds the clocks back, or that nothing asks for more.
THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_ALL_LINKS = 0xFFFFFFFF
_SM, _MEMORY, _GPU_TEMPERATURE, _TX, _RX = 1, 2, 0, 0, 1  # NVML's numbers
_NVLINK_TX, _NVLINK_RX = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, KiB over all links
MAX_LINKS = 18


class NvmlError(Exception):
    """NVML cannot be used here; the message says why and ends with what to do."""


class Nvml(NamedTuple):
    """The library at work and a handle for each GPU, in the driver's order."""

    library: Any
    handles: tuple[Any, ...]

    def close(self) -> None:
        self.library.nvmlShutdown()


def open_nvml(load: Callable[[str], Any] = importlib.import_module) -> Nvml:
    """NVML started. ``load`` imports a module by name. Errors: NvmlError."""
    try:
        library = load("pynvml")
    except ImportError:
        raise NvmlError("the package nvidia-ml-py is not installed; pip install it on the server's host") from None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise NvmlError(f"NVML does not start ({error}): the host has no NVIDIA driver, or not a whole one") from None
    try:
        handles = tuple(library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount()))
    except library.NVMLError as error:
        library.nvmlShutdown()
        raise NvmlError(f"NVML cannot reach the GPUs ({error}); check the driver and the permissions") from None
    if not handles:
        library.nvmlShutdown()
        raise NvmlError("the driver is there and has no GPU; sample on the server's host")
    return Nvml(library, handles)


class Asking:
    """Asks one question after another and keeps, by field, why one was not answered."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.missing: dict[str, str] = {}

    def __call__(self, fields: str, name: str, *arguments: Any) -> Any:
        """What the library's function ``name`` answers; None where it does not, and ``fields`` then have the reason."""
        function = getattr(self.library, name, None)
        if function is None:
            why = f"this version of nvidia-ml-py has no {name}"
        else:
            try:
                return function(*arguments)
            except self.library.NVMLError as error:
                why = str(error)
        self.missing |= dict.fromkeys(fields.split(), why)
        return None


def read_gpu(nvml: Nvml, index: int) -> GpuReading:
    """One GPU now."""
    library, handle = nvml
    ask, device = Asking(library), handle[index]
    memory = ask("memory_total_bytes memory_used_bytes", "nvmlDeviceGetMemoryInfo", device)
    rates = ask("utilisation_ratio memory_utilisation_ratio", "nvmlDeviceGetUtilizationRates", device)
    power = ask("power_w", "nvmlDeviceGetPowerUsage", device)
    limit = ask("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", device)
    energy = ask("energy_j", "nvmlDeviceGetTotalEnergyConsumption", device)
    received = ask("pcie_rx_bytes_per_s", "nvmlDeviceGetPcieThroughput", device, _RX)
    sent = ask("pcie_tx_bytes_per_s", "nvmlDeviceGetPcieThroughput", device, _TX)
    active, nvlink_received, nvlink_sent = _nvlink(ask, device)
    return GpuReading(
        index=index,
        name=text(ask("name", "nvmlDeviceGetName", device)),
        uuid=text(ask("uuid", "nvmlDeviceGetUUID", device)),
        memory_total_bytes=None if memory is None else int(memory.total),
        memory_used_bytes=None if memory is None else int(memory.used),
        utilisation_ratio=None if rates is None else rates.gpu / 100,
        memory_utilisation_ratio=None if rates is None else rates.memory / 100,
        sm_clock_mhz=ask("sm_clock_mhz", "nvmlDeviceGetClockInfo", device, _SM),
        memory_clock_mhz=ask("memory_clock_mhz", "nvmlDeviceGetClockInfo", device, _MEMORY),
        power_w=None if power is None else power / 1000,
        power_limit_w=None if limit is None else limit / 1000,
        energy_j=None if energy is None else energy / 1000,
        temperature_celsius=_real(ask("temperature_celsius", "nvmlDeviceGetTemperature", device, _GPU_TEMPERATURE)),
        pcie_rx_bytes_per_s=None if received is None else received * 1024.0,
        pcie_tx_bytes_per_s=None if sent is None else sent * 1024.0,
        pcie_generation=ask("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", device),
        pcie_width=ask("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", device),
        nvlink_n_active=active,
        nvlink_rx_bytes=nvlink_received,
        nvlink_tx_bytes=nvlink_sent,
        throttle_reasons=_throttle(ask, device),
        missing=ask.missing,
    )


def throttle_names(bits: int) -> tuple[str, ...]:
    """The reasons in a mask; a bit this table does not know is named by its value."""
    known = tuple(name for bit, name in THROTTLE_REASONS.items() if bits & bit)
    rest = bits & ~sum(THROTTLE_REASONS)
    return (*known, f"unknown_{rest:#x}") if rest else known


def text(value: Any) -> str | None:
    """Older versions of the package answer bytes."""
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def active_links(ask: Asking, device: Any) -> int | None:
    """How many NVLink links are up; None, with the reason, where the device has none to ask for."""
    n_active = n_known = 0
    for link in range(MAX_LINKS):
        answer = ask("nvlink_n_active", "nvmlDeviceGetNvLinkState", device, link)
        if answer is None:
            break
        n_known += 1
        n_active += answer == 1
    if n_known:
        ask.missing.pop("nvlink_n_active", None)
    return n_active if n_known else None


def _nvlink(ask: Asking, device: Any) -> tuple[int | None, int | None, int | None]:
    active = active_links(ask, device)
    if not active:
        why = "no NVLink link is up" if active == 0 else ask.missing["nvlink_n_active"]
        ask.missing |= dict.fromkeys(("nvlink_rx_bytes", "nvlink_tx_bytes"), why)
        return active, None, None
    fields = [(_NVLINK_RX, _ALL_LINKS), (_NVLINK_TX, _ALL_LINKS)]
    answers = ask("nvlink_rx_bytes nvlink_tx_bytes", "nvmlDeviceGetFieldValues", device, fields)
    counted: list[int | None] = [None, None]
    for i, name in enumerate(("nvlink_rx_bytes", "nvlink_tx_bytes")):
        if answers is not None and answers[i].nvmlReturn == 0:
            counted[i] = int(answers[i].value.ullVal) * 1024
        elif answers is not None:
            ask.missing[name] = f"NVML answers {answers[i].nvmlReturn} for this field"
    return active, counted[0], counted[1]


def _throttle(ask: Asking, device: Any) -> tuple[str, ...] | None:
    newer = "nvmlDeviceGetCurrentClocksEventReasons"
    name = newer if hasattr(ask.library, newer) else "nvmlDeviceGetCurrentClocksThrottleReasons"
    bits = ask("throttle_reasons", name, device)
    return None if bits is None else throttle_names(int(bits))


def _real(value: Any) -> float | None:
    return None if value is None else float(value)
