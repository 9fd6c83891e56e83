"""The rooms and the one direction of data: who may import whom, checked by importing and by reading."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ["prompts", "scenarios", "infra", "locustfiles", "evidence", "study", "analysis"]
LOAD = {"locust", "gevent"}

# room -> packages that must not be in sys.modules once every module of the room has been imported
NEVER_LOADED = {
    "prompts": {"scenarios", "infra", "evidence", "study", "analysis", "openai", "numpy"} | LOAD,
    "evidence": {"prompts", "scenarios", "infra", "study", "analysis", "openai", "numpy"} | LOAD,
    "scenarios": {"infra", "evidence", "study", "analysis", "openai"} | LOAD,
    "infra": {"scenarios", "prompts", "study", "analysis"} | LOAD,
    "study": {"analysis"} | LOAD,
    "analysis": {"study", "openai", "requests", "urllib3", "httpx2"} | LOAD,
}
# who may import whom of ours, read from the source
MAY_IMPORT = {
    "prompts": set(),
    "evidence": set(),
    "scenarios": {"prompts"},
    "infra": {"infra", "evidence"},
    "locustfiles": {"prompts", "scenarios", "infra", "evidence"},
    "study": {"scenarios", "infra", "evidence"},
    "analysis": {"evidence", "infra", "scenarios"},
}
PURE_ROOMS = ["infra/wire", "infra/engines"]
NO_IO = {
    *("time", "datetime", "socket", "ssl", "selectors", "select", "asyncio", "logging", "os", "io", "pathlib"),
    *("subprocess", "threading", "tempfile", "shutil", "random"),
}


def modules_of(room: str) -> list[str]:
    paths = (ROOT / room).rglob("*.py")
    return sorted(".".join(p.relative_to(ROOT).with_suffix("").parts) for p in paths if p.name != "__main__.py")


def imports_in(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("room", sorted(NEVER_LOADED))
def test_importing_a_room_loads_nothing_it_must_never_load(room):
    names = [m for m in modules_of(room) if m != "infra.launching.embedded"]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        f"print(sorted({sorted(NEVER_LOADED[room])!r} and set({sorted(NEVER_LOADED[room])!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]", f"{room} loads {done.stdout.strip()}"


@pytest.mark.parametrize("room", sorted(MAY_IMPORT))
def test_a_room_imports_only_the_rooms_it_may(room):
    allowed = MAY_IMPORT[room] | {room}
    wrong = []
    for path in (ROOT / room).rglob("*.py"):
        for name in imports_in(path):
            top = name.split(".")[0]
            if top in ROOMS and top not in allowed:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_analysis_takes_only_wire_and_engines_from_infra():
    wrong = []
    for path in (ROOT / "analysis").rglob("*.py"):
        for name in imports_in(path):
            parts = name.split(".")
            if parts[0] == "infra" and len(parts) > 1 and parts[1] not in {"wire", "engines"}:
                wrong.append(f"{path.name} imports {name}")
    assert wrong == []


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_wire_and_engines_call_no_clock_socket_file_or_logger(room):
    wrong = []
    for path in (ROOT / room).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        wrong += [f"{path.name} imports {n}" for n in imports_in(path) if n.split(".")[0] in NO_IO]
        calls = [n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
        wrong += [f"{path.name} calls {name}" for name in calls if name in {"open", "print", "input"}]
    assert wrong == []


def test_only_locustfiles_import_locust_and_gevent():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room in ROOMS
        if room != "locustfiles"
        for path in (ROOT / room).rglob("*.py")
        for name in imports_in(path)
        if name.split(".")[0] in LOAD
    ]
    assert wrong == []


def test_nobody_imports_a_locustfile():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room in ROOMS
        if room != "locustfiles"
        for path in (ROOT / room).rglob("*.py")
        for name in imports_in(path)
        if name.split(".")[0] == "locustfiles"
    ]
    assert wrong == []


def test_every_requirement_is_pinned_and_has_its_reason_in_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in [
        *("requirements.txt", "requirements-engine.txt", "requirements-model.txt", "requirements-dev.txt"),
        *("requirements-export.txt", "requirements-shards.txt"),
    ]:
        for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
            if not line or line.startswith(("#", "-c")):
                continue
            package, _, version = line.partition("==")
            assert version, f"{name}: {line} has no exact pin"
            assert f"`{package}`" in readme, f"README.md gives no reason for {package}"


def test_no_module_is_longer_than_a_person_reads_at_once():
    long = {
        str(path.relative_to(ROOT)): n
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > 330
    }
    assert long == {}


def test_forbidden_names_of_modules_do_not_appear():
    banned = {"utils", "helpers", "manager", "base", "common", "misc", "registry", "factory"}
    found = [str(p.relative_to(ROOT)) for room in ROOMS for p in (ROOT / room).rglob("*.py") if p.stem in banned]
    assert found == []
