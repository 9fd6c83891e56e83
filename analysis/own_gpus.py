"""Which of a host's GPUs a run's server may use, so that power and memory of a neighbour's are not taken for its own.

Samples are of every GPU of the host. A study chooses devices by ``CUDA_VISIBLE_DEVICES`` and hands it to server and
load generator alike, so that it stands in the run's manifest; where it does, the run cites a launch on this host, and
it names GPUs as the driver numbers or calls them, the samples of the others are left out of every number. They stay on
file and among the drawn lanes. Otherwise all sampled GPUs count. CUDA may number GPUs of several models otherwise than
the driver does: there a number names none, unless ``CUDA_DEVICE_ORDER`` is ``PCI_BUS_ID``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from evidence.gpu_records import GpuReading, GpuSample
from evidence.records import Json, Manifest

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True, slots=True)
class Own:
    """``named`` is what the environment names, None where all sampled GPUs count."""

    named: tuple[str, ...] | None

    def samples(self, found: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
        """The samples with the readings of the run's own GPUs alone; one in which none of them was read says so."""
        return tuple(found) if self.named is None else tuple(self._of(one, self.named) for one in found)

    def _of(self, sample: GpuSample, named: tuple[str, ...]) -> GpuSample:
        gpus = tuple(gpu for gpu in sample.gpus if any(_is(gpu, name) for name in named))
        if gpus or not sample.gpus:
            return sample.model_copy(update={"gpus": gpus})
        why = f"none of the server's own GPUs ({VARIABLE}={','.join(named)}) was sampled"
        return sample.model_copy(update={"gpus": (), "missing": sample.missing or why})


def own_gpus(manifest: Manifest) -> Own:
    """What the manifest says of the server's own GPUs."""
    hardware = manifest.hardware if isinstance(manifest.hardware, dict) else {}
    chosen = manifest.environment.get(VARIABLE)
    if manifest.launch_id is None or hardware.get("server_on_this_host") is not True or chosen is None:
        return Own(named=None)
    named = tuple(part.strip() for part in chosen.split(","))
    numbers = _one_model(hardware) or manifest.environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    whole = all(name.startswith("GPU-") or (numbers and name.isdigit()) for name in named)
    return Own(named=named if whole else None)


def _one_model(hardware: dict[str, Json]) -> bool:
    gpus = hardware.get("gpus")
    return isinstance(gpus, list) and len({one.get("name") for one in gpus if isinstance(one, dict)}) == 1


def _is(gpu: GpuReading, name: str) -> bool:
    """``GPU-`` names may be cut short, as the driver's own are."""
    return gpu.index == int(name) if name.isdigit() else (gpu.uuid or "").startswith(name)
