"""What software a command arm runs: asked of the very interpreter or binary it names, within bounds."""

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

_PACKAGES = (
    *("sglang", "vllm", "torch", "flashinfer-python", "sgl-kernel", "sglang-kernel", "triton", "transformers"),
    *(
        "tokenizers",
        "xgrammar",
        "tensorrt-llm",
        "llama-cpp-python",
        "xllamacpp",
        "nvidia-nccl-cu12",
        "nvidia-nccl-cu13",
        "flashinfer-cubin",
        "flash-attn",
        "nvidia-cuda-runtime",
        "nvidia-cuda-runtime-cu12",
        "nvidia-cuda-runtime-cu13",
    ),
)
_ASK = (
    "import importlib.metadata as m, json, platform, sys\n"
    "found = {'python': platform.python_version()}\n"
    "for name in sys.argv[1:]:\n"
    "    try: found[name] = m.version(name)\n"
    "    except m.PackageNotFoundError: pass\n"
    "print(json.dumps(found))"
)
_WITHIN_S = 20.0


def find_program(program: str) -> str | None:
    """The program as a path that can be run from any folder; None where there is none."""
    if os.sep in program:
        path = Path(program).absolute()  # not resolved: a virtual environment's python is a link
        return str(path) if os.access(path, os.X_OK) and path.is_file() else None
    return shutil.which(program)


def versions_of(program: tuple[str, ...], environment: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Packages of the interpreter the command runs in, or what ``llama-server --version`` says; and why there is none.

    A script such as ``vllm`` is asked through the interpreter in its first line. The system's own facts always stand.
    """
    system = {"system": platform.platform(), **gpu_driver()}
    path = find_program(program[0])
    if path is None:
        return system, f"{program[0]} is not there"
    if Path(path).name.startswith("llama-"):
        said, why = _run((path, "--version"), environment)
        spoken = re.search(r"version: (\S+ ?\(\w+\)|\S+)", said or "")
        return (system | {"llama.cpp": spoken[1]}, None) if spoken else (system, why or "it does not say its version")
    interpreter = path if Path(path).name.startswith("python") else _shebang(Path(path))
    if interpreter is None:
        return system, f"{Path(path).name} names no interpreter to ask"
    said, why = _run((interpreter, "-c", _ASK, *_PACKAGES), environment)
    try:
        found = json.loads(said or "")
    except ValueError:
        return system, why or "the interpreter did not answer"
    return system | {str(key): str(value) for key, value in found.items()}, None


def gpu_driver() -> dict[str, str]:
    """``nvidia_driver``, where ``nvidia-smi`` says it."""
    rows = gpu_rows("driver_version")
    return {"nvidia_driver": rows[0][0]} if rows else {}


def gpu_memory() -> list[dict[str, int | str]] | None:
    """Each GPU's name, ``total_bytes`` and ``in_use_bytes`` now; None where ``nvidia-smi`` does not say."""
    rows = gpu_rows("index,name,memory.total,memory.used")
    if rows is None:
        return None
    found: list[dict[str, int | str]] = []
    for index, name, total, used in rows:
        if total.isdigit() and used.isdigit():
            found.append(
                {"device": index, "name": name, "total_bytes": int(total) << 20, "in_use_bytes": int(used) << 20}
            )
    return found or None


def gpu_rows(fields: str) -> list[list[str]] | None:
    """One row a GPU of the fields asked for; None without a driver."""
    if shutil.which("nvidia-smi") is None:
        return None
    said, _ = _run(("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader,nounits"), {})
    rows = [[cell.strip() for cell in line.split(",")] for line in (said or "").splitlines() if line.strip()]
    return [row for row in rows if len(row) == fields.count(",") + 1] or None


def _shebang(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            line = file.readline(256)
    except OSError:
        return None
    words = line[2:].decode("utf-8", "replace").split() if line.startswith(b"#!") else []
    return words[0] if words and "python" in Path(words[0]).name else None


def _run(argv: tuple[str, ...], environment: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Standard output and error together, or why there is none."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_WITHIN_S,
            env={**os.environ, **environment},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_WITHIN_S:g} s"
    except OSError as error:
        return None, f"cannot be run: {error.strerror}"
    return (done.stdout, None) if done.returncode == 0 else (None, f"it ended with {done.returncode}")
