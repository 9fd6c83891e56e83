"""What is carried to a closed cluster arrives whole or not at all, and is laid beside what the host has."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.__main__ import main as infra_main
from infra.offline import kernels
from infra.offline.bundle import MANIFEST, OfflineError, pack, read_manifest
from infra.offline.environment import lay_environment
from infra.offline.overlay import host_names, overlay
from infra.offline.unbundle import faults, unpack

ROOT = Path(__file__).resolve().parent.parent


def a_folder(path: Path) -> Path:
    (path / "inner").mkdir(parents=True)
    (path / "inner" / "words.txt").write_bytes(b"barley and copper " * 400)
    (path / "tool").write_bytes(b"#!/bin/sh\n")
    (path / "tool").chmod(0o755)
    (path / "link").symlink_to("inner/words.txt")
    (path / "inner" / "__pycache__").mkdir()
    (path / "inner" / "__pycache__" / "x.pyc").write_bytes(b"rebuilt there")
    return path


def seen(path: Path) -> Iterator[tuple[str, int, bytes]]:
    for one in sorted(path.rglob("*")):
        if "__pycache__" not in one.parts and not one.is_dir():
            content = os.fsencode(one.readlink()) if one.is_symlink() else one.read_bytes()
            yield str(one.relative_to(path)), one.lstat().st_mode & 0o777, content


def packed(tmp_path: Path, piece_bytes: int = 100) -> tuple[Path, Path, Path]:
    folder = a_folder(tmp_path / "site")
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(range(256)) * 4)
    pack({"site": folder, "model.gguf": file}, tmp_path / "bundle", piece_bytes=piece_bytes)
    return tmp_path / "bundle", folder, file


@settings(max_examples=12, deadline=None)
@given(piece_bytes=st.integers(1, 3000))
def test_a_bundle_arrives_as_it_was_packed_however_small_its_pieces(
    tmp_path_factory: pytest.TempPathFactory, piece_bytes: int
) -> None:
    tmp_path = tmp_path_factory.mktemp("carried")
    bundle, folder, file = packed(tmp_path, max(piece_bytes, 20))
    assert unpack(bundle, tmp_path / "there") == ("site", "model.gguf")
    assert list(seen(tmp_path / "there" / "site")) == list(seen(folder))
    assert (tmp_path / "there" / "model.gguf").read_bytes() == file.read_bytes()
    assert all(path.stat().st_size <= max(piece_bytes, 20) for path in bundle.glob("piece-*"))


def test_equal_folders_make_equal_bundles(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "site")
    first, second = (pack({"site": folder}, tmp_path / name, piece_bytes=10_000) for name in ("one", "two"))
    assert first == second


def test_a_changed_byte_names_its_piece_and_nothing_is_laid_out(tmp_path: Path) -> None:
    bundle, _, _ = packed(tmp_path)
    piece = bundle / "piece-002.bin"
    piece.write_bytes(bytes([piece.read_bytes()[0] ^ 1]) + piece.read_bytes()[1:])
    assert faults(bundle) == ("piece-002.bin has another hash than the manifest says",)
    with pytest.raises(OfflineError, match=r"piece-002\.bin.*Bring these pieces again"):
        unpack(bundle, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_pieces_that_come_one_by_one_are_laid_out_as_soon_as_a_content_is_whole(tmp_path: Path) -> None:
    bundle, folder, _ = packed(tmp_path)
    last = bundle / read_manifest(bundle).pieces[-1].file
    held = last.read_bytes()
    last.unlink()
    assert faults(bundle) == (f"{last.name} is missing",)
    assert unpack(bundle, tmp_path / "there", partial=True) == ("site",)
    assert list(seen(tmp_path / "there" / "site")) == list(seen(folder))
    (tmp_path / "there" / "site" / "tool").write_bytes(b"changed by hand")
    last.write_bytes(held)
    assert unpack(bundle, tmp_path / "there") == ("site", "model.gguf")
    assert (tmp_path / "there" / "site" / "tool").read_bytes() == b"changed by hand", "what is there already stays"


def test_a_newer_bundle_replaces_what_an_older_one_laid_out(tmp_path: Path) -> None:
    bundle, folder, _ = packed(tmp_path)
    unpack(bundle, tmp_path / "there")
    (folder / "tool").write_bytes(b"#!/bin/sh\nexit 1\n")
    (folder / "link").unlink()
    pack({"site": folder}, tmp_path / "newer", piece_bytes=10_000)
    unpack(tmp_path / "newer", tmp_path / "there")
    assert list(seen(tmp_path / "there" / "site")) == list(seen(folder))


def test_a_content_that_would_leave_its_folder_is_refused(tmp_path: Path) -> None:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:xz") as tar:
        member = tarfile.TarInfo("../outside")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"bad"))
    stored = held.getvalue()
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "piece-001.bin").write_bytes(stored)
    size, digest = len(stored), sha256(stored).hexdigest()
    content = {"name": "site", "stored": "tar.xz", "stored_bytes": size, "stored_sha256": digest}
    said: dict[str, Any] = {
        "format": 1,
        "contents": [{**content, "n_files": 1, "size_bytes": 3}],
        "pieces": [{"file": "piece-001.bin", "size_bytes": size, "sha256": digest}],
    }
    (bundle / MANIFEST).write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(OfflineError, match="cannot be unpacked"):
        unpack(bundle, tmp_path / "there")
    assert not (tmp_path / "outside").exists()
    assert not (tmp_path / "there" / "outside").exists()
    said["contents"][0]["name"] = "../site"
    (bundle / MANIFEST).write_text(json.dumps(said), encoding="utf-8")
    with pytest.raises(OfflineError, match="no plain name"):
        unpack(bundle, tmp_path / "there")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "contents": [{}], "pieces": []}'])
def test_a_manifest_that_says_nothing_usable_is_refused_by_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(OfflineError, match=MANIFEST):
        read_manifest(tmp_path)


def test_an_environment_takes_brought_packages_first_and_the_hosts_after(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "bin").mkdir(parents=True)
    (site / "pytest.py").write_text("brought = True\n", encoding="utf-8")  # of a name that this interpreter has too
    (site / "bin" / "say").write_text("#!/elsewhere/python3\nimport sys; print(sys.executable)\n", encoding="utf-8")
    python = lay_environment(tmp_path / "environment", site, with_host=True)
    asked = "import hypothesis, pytest; print(pytest.brought, hypothesis.__name__)"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True hypothesis\n", "")
    assert (site / "pytest.py").exists(), "linked or copied, not moved"
    script = subprocess.run([tmp_path / "environment" / "bin" / "say"], capture_output=True, text=True, check=True)
    assert script.stdout.strip() == str(python)


def test_an_environment_of_its_own_does_not_see_the_hosts_packages(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "alone.py").write_text("", encoding="utf-8")
    python = lay_environment(tmp_path / "environment", tmp_path / "site", with_host=False, move=True)
    asked = "import alone\ntry: import hypothesis\nexcept ModuleNotFoundError: print('not here')"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout == "not here\n"
    assert list((tmp_path / "site").iterdir()) == []
    with pytest.raises(OfflineError, match="is there already"):
        lay_environment(tmp_path / "environment", tmp_path / "site", with_host=False)


def a_package(site: Path, name: str, files: dict[str, str]) -> None:
    about = site / f"{name}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    for file, text in files.items():
        (site / file).parent.mkdir(parents=True, exist_ok=True)
        (site / file).write_text(text, encoding="utf-8")
    listed = [*files, f"{about.name}/METADATA", f"{about.name}/RECORD", "../../bin/script"]
    (about / "RECORD").write_text("".join(f"{one},,\n" for one in listed), encoding="utf-8")


def test_only_what_the_host_lacks_is_taken_whatever_way_its_list_spells_names(tmp_path: Path) -> None:
    site, listed = tmp_path / "site", tmp_path / "host.json"
    a_package(site, "Flask_Login", {"flask_login.py": ""})
    a_package(site, "engine", {"engine/ops.py": "x = 1", "engine/sm100/ops.so": "large", "engine/sm90/ops.so": "kept"})
    a_package(site, "pinned.one", {"pinned.py": "newer"})
    a_package(site, "unused", {"unused.py": ""})
    names = ("flask.login", "pinned-one", "torch")
    listed.write_text(json.dumps([{"name": name, "version": "0"} for name in names]), encoding="utf-8")
    chosen = {"also": ["pinned_one"], "without": ["Unused"], "skip": ["*/sm100/*"]}
    taken = overlay(site, tmp_path / "out", host_names(listed), **chosen)
    assert sorted(one.name for one in taken) == ["engine", "pinned-one"]
    files = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*") if path.is_file()}
    assert files == {"engine/ops.py", "engine/sm90/ops.so", "pinned.py"}
    with pytest.raises(OfflineError, match="no package nobody"):
        overlay(site, tmp_path / "again", (), also=["nobody"])


def test_compiled_kernels_travel_with_their_times_and_never_replace_what_is_there(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    module = here / ".cache" / "tvm-ffi" / "rope" / "module.so"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"compiled")
    os.utime(module, ns=(1_795_981_620_123_456_789, 1_795_981_620_123_456_789))
    (here / ".triton" / "cache" / "A").mkdir(parents=True)
    (there / ".triton" / "cache" / "A").mkdir(parents=True)
    (here / ".triton" / "cache" / "A" / "kernel.json").write_bytes(b"older")
    (there / ".triton" / "cache" / "A" / "kernel.json").write_bytes(b"newer")
    assert kernels.gather(here, tmp_path / "kernels") == (".cache/tvm-ffi", ".triton/cache")
    pack({"kernels": tmp_path / "kernels"}, tmp_path / "bundle", piece_bytes=10_000)
    unpack(tmp_path / "bundle", tmp_path / "arrived")
    kernels.lay(tmp_path / "arrived" / "kernels", there)
    laid = there / ".cache" / "tvm-ffi" / "rope" / "module.so"
    assert laid.read_bytes() == b"compiled"
    assert abs(laid.stat().st_mtime_ns - module.stat().st_mtime_ns) < 1_000
    assert (there / ".triton" / "cache" / "A" / "kernel.json").read_bytes() == b"newer"
    with pytest.raises(OfflineError, match="start the engine once"):
        kernels.gather(tmp_path / "arrived", tmp_path / "none")


def test_the_verbs_need_nothing_but_python(tmp_path: Path) -> None:
    bundle, folder, _ = packed(tmp_path)
    bare = [sys.executable, "-I", "-S", "-c", "import sys; sys.path.insert(0, sys.argv.pop(1)); import runpy; "]
    bare[-1] += "runpy.run_module('infra.offline', run_name='__main__')"

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*bare, str(ROOT), *map(str, words)], capture_output=True, text=True, check=False)

    assert run("verify", bundle).returncode == 0
    done = run("unpack", bundle, tmp_path / "there")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(seen(tmp_path / "there" / "site")) == list(seen(folder))
    (bundle / "piece-001.bin").unlink()
    gone = run("verify", bundle)
    assert (gone.returncode, gone.stdout) == (1, "piece-001.bin is missing\n")
    assert run("pack", tmp_path / "b", "nonsense").returncode == 2


def test_every_verb_answers_with_one_json_object_and_tells_what_is_broken_from_what_was_asked_wrongly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str | Path) -> tuple[int, dict[str, Any]]:
        code = infra_main(["offline", *map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out)

    (tmp_path / "file").write_bytes(b"barley" * 100)
    bundle = tmp_path / "bundle"
    code, made = run("pack", bundle, f"file={tmp_path / 'file'}", "--piece-mb", "0.0002")
    assert (code, made["exit_code"], [one["name"] for one in made["contents"]]) == (0, 0, ["file"])
    assert run("verify", bundle) == (0, {"exit_code": 0, "bundle": str(bundle), "faults": []})
    (bundle / "piece-001.bin").unlink()
    assert run("verify", bundle)[1]["faults"] == ["piece-001.bin is missing"]
    for words, exit_code, says in (
        (("unpack", bundle, tmp_path / "there"), 1, "piece-001.bin is missing"),
        (("verify", tmp_path / "none"), 2, "cannot be read"),
        (("pack", tmp_path / "b", "nonsense"), 2, "NAME=PATH"),
        (("pack", tmp_path / "b", f"x={tmp_path / 'none'}"), 2, "is not there"),
    ):
        code, said = run(*words)
        assert (code, said["exit_code"]) == (exit_code, exit_code)
        assert says in said["error"]


def test_a_size_that_is_none_is_said_with_one_that_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        infra_main(["offline", "pack", str(tmp_path / "b"), "x=y", "--piece-mb", "big"])
    assert "'big' is no size in megabytes: give one" in capsys.readouterr().err
