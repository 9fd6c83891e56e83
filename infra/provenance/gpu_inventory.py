"""The GPUs of this host and the links between them, against what an arm planned.

Link words are those of ``nvidia-smi topo -m``: NV# (that many NVLink links), PIX (one PCIe bridge), PXB (several), PHB
(through the CPU's host bridge), NODE (within a NUMA node), SYS (between NUMA nodes).
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from infra.telemetry.nvml import MAX_LINKS, Asking, Nvml, NvmlError, active_links, open_nvml, text

_LEVELS = {0: "same board", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P_NVLINK, _P2P_OK = 2, 0


def inventory(load: Callable[[str], Any] = importlib.import_module) -> dict[str, Any]:
    """``gpus``, ``links``, ``driver``, ``cuda``; or ``gpus`` empty and ``missing`` with the reason."""
    try:
        nvml = open_nvml(load)
    except NvmlError as error:
        return {"gpus": [], "links": [], "driver": None, "cuda": None, "missing": str(error)}
    try:
        ask = Asking(nvml.library)
        cuda = ask("cuda", "nvmlSystemGetCudaDriverVersion_v2")
        return {
            "gpus": [_gpu(nvml, i) for i in range(len(nvml.handles))],
            "links": [
                {"between": [i, j], "link": _link(nvml, i, j)}
                for i in range(len(nvml.handles))
                for j in range(i + 1, len(nvml.handles))
            ],
            "driver": text(ask("driver", "nvmlSystemGetDriverVersion")),
            "cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "missing": "; ".join(f"{name}: {why}" for name, why in ask.missing.items()) or None,
        }
    finally:
        nvml.close()


def against_plan(found: Mapping[str, Any], planned: Mapping[str, Any]) -> list[str]:
    """Where the host differs from an arm's ``gpus`` table (count, name, memory_mib, link); empty where all fits.

    A planned value of None asks for nothing. What the host does not tell is a difference too: it is not shown.
    """
    gpus: Sequence[Mapping[str, Any]] = found.get("gpus") or []
    if not gpus:
        return [f"no GPU is known here: {found.get('missing') or 'none reported'}"]
    wrong = []
    count = planned.get("count")
    if count is not None and len(gpus) < count:
        wrong.append(f"{len(gpus)} GPUs are here, {count} are planned")
    for gpu in gpus[:count]:
        if planned.get("name") and str(planned["name"]).lower() not in str(gpu.get("name")).lower():
            wrong.append(f"GPU {gpu['index']} is {gpu.get('name')!r}, {planned['name']!r} is planned")
        memory = gpu.get("memory_bytes")
        if planned.get("memory_mib") and (memory is None or memory < 0.98 * planned["memory_mib"] * (1 << 20)):
            seen = "unknown memory" if memory is None else f"{memory >> 20} MiB"
            wrong.append(f"GPU {gpu['index']} has {seen}, {planned['memory_mib']} MiB are planned")
    if planned.get("link") and (count or 0) > 1:
        wants = str(planned["link"]).lower()
        for link in found.get("links") or []:
            is_nvlink = str(link["link"]).startswith("NV")
            if (max(link["between"]) < (count or 0)) and is_nvlink != wants.startswith("nv"):
                wrong.append(f"GPUs {link['between'][0]} and {link['between'][1]} are linked by {link['link']}")
                wrong[-1] += f", {planned['link']} is planned"
    return wrong


def _gpu(nvml: Nvml, index: int) -> dict[str, Any]:
    ask, device = Asking(nvml.library), nvml.handles[index]
    memory = ask("memory_bytes", "nvmlDeviceGetMemoryInfo", device)
    pci = ask("pci", "nvmlDeviceGetPciInfo", device)
    capability = ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", device)
    mig = ask("mig", "nvmlDeviceGetMigMode", device)
    return {
        "index": index,
        "name": text(ask("name", "nvmlDeviceGetName", device)),
        "uuid": text(ask("uuid", "nvmlDeviceGetUUID", device)),
        "memory_bytes": None if memory is None else int(memory.total),
        "memory_in_use_bytes": None if memory is None else int(memory.used),
        "pci": None if pci is None else text(pci.busId),
        "pcie_max_generation": ask("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration", device),
        "pcie_max_width": ask("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth", device),
        "compute_capability": None if capability is None else ".".join(map(str, capability)),
        "mig": None if mig is None else mig[0] == 1,
        "nvlink_n_active": active_links(ask, device),
        "missing": ask.missing,
    }


def _link(nvml: Nvml, first: int, second: int) -> str | None:
    ask = Asking(nvml.library)
    ours, theirs = nvml.handles[first], nvml.handles[second]
    if ask("link", "nvmlDeviceGetP2PStatus", ours, theirs, _P2P_NVLINK) == _P2P_OK:
        return f"NV{_links_to(nvml, ours, theirs) or active_links(Asking(nvml.library), ours) or ''}"
    level = ask("link", "nvmlDeviceGetTopologyCommonAncestor", ours, theirs)
    return None if level is None else _LEVELS.get(level, f"level {level}")


def _links_to(nvml: Nvml, ours: Any, theirs: Any) -> int:
    """Links that end at this very peer; 0 where they end at a switch."""
    ask = Asking(nvml.library)
    peer = ask("pci", "nvmlDeviceGetPciInfo", theirs)
    ends = [ask("link", "nvmlDeviceGetNvLinkRemotePciInfo", ours, link) for link in range(MAX_LINKS)]
    return sum(end is not None and peer is not None and text(end.busId) == text(peer.busId) for end in ends)
