"""Bundles: the same folder gives the same archive, it carries failures along, and nothing tampered unpacks."""

import argparse
import gzip
import hashlib
import io
import json
import lzma
import os
import tarfile
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import run_factory as factory
import studies
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.bundle import add_unpack_arguments, bundle, export_command, unpack, unpack_command, verify_bundle
from analysis.bundle_archive import Limits, check_name, read_archive
from analysis.errors import AnalysisError
from evidence import receipts
from evidence.errors import EvidenceError
from evidence.receipts import exported, not_exported, receipt_path, runs_not_exported
from evidence.verify import verify


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    runs = tmp_path / "runs"
    studies.launch(runs / "launches", studies.SERVED, b"log of the engine\n" * 50)
    return factory.make_run(
        runs, [factory.request(), factory.request()], launch_dir=f"launches/{studies.SERVED}", launch_id=studies.SERVED
    )


def test_a_run_and_the_launch_it_cites_come_back_byte_by_byte(run, tmp_path):
    made = bundle(run, tmp_path / "x.tar.gz")
    assert made.notes == () and {one.kind for one in made.manifest.folders} == {"run", "launch"}
    unpack(made.path, tmp_path / "there")
    assert content(tmp_path / "there" / "run-test") == content(run)
    served = Path("launches") / studies.SERVED
    assert content(tmp_path / "there" / served) == content(run.parent / served)
    assert verify(tmp_path / "there" / "run-test") == verify(run)
    listed = (tmp_path / "x.tar.gz.sha256").read_text()
    assert listed == f"{hashlib.sha256(made.path.read_bytes()).hexdigest()}  x.tar.gz\n"


def test_a_study_carries_its_failed_launch(tmp_path):
    path, _ = studies.small_study(tmp_path / "runs")
    made = bundle(path, tmp_path)
    assert made.path.name == f"{studies.STUDY_ID}.bundle.tar.gz"
    kinds = sorted((one.kind, one.path.rpartition("/")[2]) for one in made.manifest.folders)
    assert kinds == [
        ("launch", studies.SERVED),
        ("launch", studies.FAILED),
        ("run", "run-test"),
        ("study", studies.STUDY_ID),
    ]
    unpack(made.path, tmp_path / "there")
    assert content(tmp_path / "there" / studies.STUDY_ID) == content(path)


def test_the_same_folder_gives_the_same_archive(run, tmp_path):
    first = bundle(run, tmp_path / "a.tar.gz").sha256
    for path in run.rglob("*"):
        os.utime(path, (1, 1))
    assert bundle(run, tmp_path / "b.tar.gz").sha256 == first


@pytest.mark.parametrize("name", ["x.tar.gz", "x.bundle.tar.xz"])
def test_any_tar_program_reads_it(run, tmp_path, name):
    made = bundle(run, tmp_path / name)
    with tarfile.open(made.path) as opened:
        names = opened.getnames()
    assert names == ["bundle.json", *(file.path for file in made.manifest.files)]
    assert names[1:] == sorted(names[1:])


def test_a_bundle_packed_tightly_has_the_same_content_and_is_smaller(run, tmp_path):
    quick, tight = bundle(run, tmp_path / "x.bundle.tar.gz"), bundle(run, tmp_path / "x.bundle.tar.xz")
    assert tight.path.read_bytes()[:6] == b"\xfd7zXZ\x00"
    assert tight.manifest == quick.manifest
    assert tight.n_bytes < quick.n_bytes
    assert bundle(run, tmp_path / "y.bundle.tar.xz").sha256 == tight.sha256
    unpack(tight.path, tmp_path / "there")
    assert content(tmp_path / "there" / run.name) == content(run)


def test_what_is_wrong_with_a_tightly_packed_bundle_is_told_and_nothing_is_left(run, tmp_path):
    whole = bundle(run, tmp_path / "x.bundle.tar.xz").path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    greedy = bytearray(lzma.compress(b"a"))
    assert (greedy[12], greedy[14:16]) == (2, b"\x21\x01")  # the block's header: twelve bytes, LZMA2, one byte of size
    greedy[16] = 36  # to look back 1 GiB
    greedy[20:24] = zlib.crc32(greedy[12:20]).to_bytes(4, "little")
    for bad in (whole[:-9], whole[: len(whole) // 2], whole + b"\0", whole + whole, bytes(flipped), bytes(greedy)):
        (tmp_path / "bad.tar.xz").write_bytes(bad)
        with pytest.raises(AnalysisError) as caught:
            unpack(tmp_path / "bad.tar.xz", tmp_path / "there")
        assert caught.value.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir() if "there" in path.name) == []


def test_the_hash_of_the_whole_is_that_of_sha256sum_over_the_members(run, tmp_path):
    made = bundle(run, tmp_path / "x.tar.gz")
    unpack(made.path, tmp_path / "there")
    found = content(tmp_path / "there")
    lines = "".join(f"{hashlib.sha256(found[name]).hexdigest()}  {name}\n" for name in sorted(found))
    assert hashlib.sha256(lines.encode()).hexdigest() == made.manifest.content_sha256


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_changed_byte_of_the_content_unpacks(data, run, tmp_path):
    archive = tmp_path / "x.tar.gz"
    if not archive.exists():
        bundle(run, archive)
    text = bytearray(gzip.decompress(archive.read_bytes()))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))
    changed = tmp_path / "changed.tar.gz"
    changed.write_bytes(gzip.compress(bytes(text), compresslevel=1))
    try:
        found = read_archive(changed, lambda _: nullcontext(None))
    except AnalysisError as error:
        assert error.exit_code == 1
        assert not (tmp_path / "there").exists()
    else:  # a byte of a header that says nothing of the content, or of the manifest's white space
        assert found.files == verify_bundle(archive).files


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_archive_that_was_cut_unpacks(data, run, tmp_path):
    archive = tmp_path / "x.tar.gz"
    if not archive.exists():
        bundle(run, archive)
    whole = archive.read_bytes()
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(AnalysisError) as caught:
        unpack(cut, tmp_path / "there")
    assert caught.value.exit_code == 1
    assert sorted(path.name for path in tmp_path.iterdir() if "there" in path.name) == []


Change = Callable[[dict, list[tuple[tarfile.TarInfo, bytes]]], None]


def forged(tmp_path: Path, change: Change, *, after: bytes = b"") -> Path:
    """An archive of two files with a right manifest, then changed; its hashes are made anew where they can be."""
    members = [(tarfile.TarInfo(name), data) for name, data in (("run-x/a", b"aaa"), ("run-x/b", b"bbb"))]
    files = [
        {"path": info.name, "n_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for info, data in members
    ]
    manifest = {"schema_version": 1, "kind": "run", "id": "run-x", "folders": [], "files": files}
    change(manifest, members)
    lines = "".join(f"{one['sha256']}  {one['path']}\n" for one in manifest["files"])
    manifest.setdefault("content_sha256", hashlib.sha256(lines.encode()).hexdigest())
    listed = json.dumps(manifest).encode()
    text = io.BytesIO()
    for info, data in [(tarfile.TarInfo("bundle.json"), listed), *members]:
        if info.isreg() and info.size == 0:
            info.size = len(data)
        text.write(info.tobuf(tarfile.GNU_FORMAT) + data + b"\0" * (-len(data) % 512))
    path = tmp_path / "forged.tar.gz"
    path.write_bytes(gzip.compress(text.getvalue() + b"\0" * 1024 + after))
    return path


def nothing(manifest, members):
    return None


def renamed(name: str) -> Change:
    def change(manifest, members):
        manifest["files"][0]["path"] = name
        members[0][0].name = name

    return change


def retyped(kind: bytes, link: str = "") -> Change:
    def change(manifest, members):
        members[0][0].type, members[0][0].linkname = kind, link

    return change


def twice(manifest, members):
    members.insert(0, members[0])
    manifest["files"].insert(0, manifest["files"][0])


def twice_unlisted(manifest, members):
    members.insert(1, members[0])


def unlisted(manifest, members):
    members.append((tarfile.TarInfo("run-x/c"), b"ccc"))


def lacking(manifest, members):
    members.pop()


def swapped(manifest, members):
    members.reverse()


def longer(manifest, members):
    members[1] = (members[1][0], b"bbb" + b"0" * 5000)


def bomb(manifest, members):
    manifest["files"][1]["n_bytes"] = 1 << 50
    members[1][0].size = 1 << 50


def other_bytes(manifest, members):
    members[1] = (members[1][0], b"bbc")


def other_whole(manifest, members):
    manifest["content_sha256"] = "0" * 64


def extra_field(manifest, members):
    manifest["extra"] = 1


def next_version(manifest, members):
    manifest["schema_version"] = 2


def file_and_folder(manifest, members):
    renamed("run-x/b/inside")(manifest, members)
    members[0], members[1] = members[1], members[0]
    manifest["files"].reverse()


def test_the_forged_archive_is_good_before_it_is_changed(tmp_path):
    unpack(forged(tmp_path, nothing), tmp_path / "there")
    assert content(tmp_path / "there") == {"run-x/a": b"aaa", "run-x/b": b"bbb"}


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (renamed("../a"), "leads out"),
        (renamed("/tmp/a"), "leads out"),
        (renamed("run-x/../../a"), "leads out"),
        (renamed("run-x//a"), "leads out"),
        (renamed("C:a"), "colon"),
        (renamed("run-x\\a"), "backslash"),
        (renamed("run-x/\na"), "control character"),
        (renamed(""), "empty"),
        (renamed("a" * 300), "longer than 255"),
        (retyped(tarfile.SYMTYPE, "/etc/passwd"), "no plain file"),
        (retyped(tarfile.LNKTYPE, "run-x/b"), "no plain file"),
        (retyped(tarfile.CHRTYPE), "no plain file"),
        (retyped(tarfile.FIFOTYPE), "no plain file"),
        (retyped(tarfile.DIRTYPE), "no plain file"),
        (retyped(tarfile.GNUTYPE_SPARSE), "refused"),
        (retyped(tarfile.XHDTYPE), "no plain file"),
        (retyped(tarfile.GNUTYPE_LONGNAME), "no plain file"),
        (twice, "listed twice"),
        (twice_unlisted, "stands where"),
        (unlisted, "after the last listed file"),
        (lacking, "ends before all listed files"),
        (swapped, "stands where"),
        (longer, "are listed"),
        (bomb, "would unpack to"),
        (other_bytes, "does not have the SHA-256"),
        (other_whole, "hash of the whole"),
        (extra_field, "extra"),
        (next_version, "schema_version"),
        (file_and_folder, "as a file and as a folder"),
    ],
)
def test_a_forged_archive_is_refused_and_leaves_nothing(tmp_path, change, seen):
    path = forged(tmp_path, change)
    with pytest.raises(AnalysisError, match=seen) as caught:
        unpack(path, tmp_path / "there")
    assert caught.value.exit_code == 1
    assert [one.name for one in tmp_path.iterdir()] == ["forged.tar.gz"]


@pytest.mark.parametrize("after", [b"\0" * 5000, b"x", b"\0" * 512 + b"x" * 512])
def test_something_after_the_end_is_refused(tmp_path, after):
    with pytest.raises(AnalysisError, match="after the last listed file"):
        unpack(forged(tmp_path, nothing, after=after), tmp_path / "there")


def test_a_manifest_beyond_the_limit_is_refused_before_it_is_read(tmp_path):
    with pytest.raises(AnalysisError, match="more than 10"):
        unpack(forged(tmp_path, nothing), tmp_path / "there", limits=Limits(manifest_bytes=10))
    with pytest.raises(AnalysisError, match="lists 2 files, more than 1"):
        unpack(forged(tmp_path, nothing), tmp_path / "there", limits=Limits(n_files=1))


def test_a_member_that_never_ends_is_not_read_beyond_its_listed_size(tmp_path):
    """A gzip bomb after a right manifest: 1 GiB of zeros where three bytes are listed."""
    path = forged(tmp_path, nothing)
    text = gzip.decompress(path.read_bytes())[:-1024]
    with gzip.open(path, "wb", compresslevel=1) as out:
        out.write(text)
        for _ in range(64):
            out.write(b"\0" * (1 << 20))
    with pytest.raises(AnalysisError, match="after the last listed file"):
        unpack(path, tmp_path / "there")


def test_no_bundle_and_no_archive_are_usage(tmp_path):
    with pytest.raises(AnalysisError) as caught:
        unpack(tmp_path / "absent", tmp_path / "there")
    assert caught.value.exit_code == 2
    (tmp_path / "text").write_text("hello")
    with pytest.raises(AnalysisError, match="is no bundle: it begins with b'hello'") as caught:
        unpack(tmp_path / "text", tmp_path / "there")
    assert caught.value.exit_code == 2


def test_nothing_is_unpacked_over_what_is_there(run, tmp_path):
    made = bundle(run, tmp_path / "x.tar.gz")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    with pytest.raises(AnalysisError, match="not empty"):
        unpack(made.path, tmp_path / "full")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AnalysisError, match="not empty"):
        unpack(made.path, tmp_path / "link")
    (tmp_path / "empty").mkdir()
    unpack(made.path, tmp_path / "empty")
    assert content(tmp_path / "full") == {"mine": b"mine"}


def test_a_link_in_the_evidence_is_refused(run, tmp_path):
    (run / "server").mkdir(exist_ok=True)
    (run / "server" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(EvidenceError, match="is a link"):
        bundle(run, tmp_path / "x.tar.gz")
    assert not (tmp_path / "x.tar.gz").exists()


def test_a_pipe_in_the_evidence_is_refused_and_not_waited_for(run, tmp_path):
    os.mkfifo(run / "pipe")
    with pytest.raises(EvidenceError, match="no plain file"):
        bundle(run, tmp_path / "x.tar.gz")


def test_a_study_that_is_being_run_is_not_packed(tmp_path):
    path, writer = studies.small_study(tmp_path / "runs", seal=False, writing=True)
    with pytest.raises(AnalysisError, match="being written by"):
        bundle(path, tmp_path / "x.tar.gz")
    writer.close()
    made = bundle(path, tmp_path / "x.tar.gz")  # to be resumed on another machine
    assert [one.sealed for one in made.manifest.folders if one.kind == "study"] == [False]


def test_a_changed_run_is_packed_and_named_as_changed(run, tmp_path):
    with (run / "plan.jsonl").open("a") as opened:
        opened.write("{}\n")
    found = next(one for one in bundle(run, tmp_path / "x.tar.gz").manifest.folders if one.kind == "run")
    assert "hash_mismatch" in found.problems


def test_a_launch_that_is_not_there_is_said_to_stay_behind(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()], launch_dir="launches/gone", launch_id="gone")
    made = bundle(run, tmp_path / "x.tar.gz")
    assert made.notes == ("the launch it cites, launches/gone, is not there and stays behind",)


def test_nothing_is_written_into_a_folder_of_evidence(run, tmp_path):
    with pytest.raises(EvidenceError, match="folder of evidence"):
        bundle(run, run / "server" / "x.tar.gz")
    before = content(run)
    bundle(run, tmp_path / "x.tar.gz")
    assert content(run) == before


def test_a_folder_is_exported_once_its_bundle_was_verified_and_while_it_stays_as_it_was(run, tmp_path):
    assert not exported(run)
    assert "not exported and verified yet" in (not_exported(run) or "")
    made = bundle(run, tmp_path / "x.tar.gz")
    assert made.receipt == run.parent / "run-test.exported.json" == receipt_path(run)
    assert exported(run) and not_exported(run) is None
    assert exported(run.parent / "launches" / studies.SERVED)
    (run / "more").write_text("more")
    assert not exported(run)


def test_the_receipt_of_a_study_speaks_of_its_runs_and_lies_beside_it(tmp_path):
    path, _ = studies.small_study(tmp_path / "runs")
    inner = path / "runs" / "run-test"
    assert not exported(inner)
    made = bundle(path, tmp_path)
    assert made.receipt == tmp_path / "runs" / f"{studies.STUDY_ID}.exported.json"
    assert exported(path) and exported(inner) and exported(path / "launches" / studies.FAILED)
    (inner / "plan.jsonl").write_text("")
    assert not exported(inner) and not exported(path) and exported(path / "launches" / studies.FAILED)


def test_a_run_of_a_study_exported_alone_leaves_its_receipt_outside_the_study(tmp_path):
    path, _ = studies.small_study(tmp_path / "runs")
    before = content(path)
    made = bundle(path / "runs" / "run-test", tmp_path)
    assert made.receipt == tmp_path / "runs" / "run-test.exported.json"
    assert content(path) == before and exported(path / "runs" / "run-test") and not exported(path)


def test_a_receipt_that_cannot_be_read_shows_nothing(run):
    receipt_path(run).write_text('{"schema_version": 9}')
    assert not exported(run)


def test_the_commands_print_hashes_and_unpack_only_the_right_archive(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, report, lines = export_command(argparse.Namespace(run=run, out=None))
    assert code == 0 and report["verified"] is True and report["out"] == "run-test.bundle.tar.gz"
    assert f"sha256 {report['sha256']}" in lines
    json.dumps(report, allow_nan=False)
    parser = argparse.ArgumentParser()
    add_unpack_arguments(parser)
    wrong = parser.parse_args([report["out"], "--sha256", "0" * 64])
    with pytest.raises(AnalysisError, match="its SHA-256 is"):
        unpack_command(wrong)
    code, unpacked, _ = unpack_command(parser.parse_args([report["out"], "--sha256", report["sha256"].upper()]))
    assert code == 0 and unpacked["content_sha256"] == report["content_sha256"]
    assert (tmp_path / "run-test-unpacked" / "run-test" / "seal.json").is_file()


def test_a_full_disk_or_a_missing_folder_is_a_write_failure(run, tmp_path):
    with pytest.raises(EvidenceError) as caught:
        bundle(run, tmp_path / "absent" / "x.tar.gz")
    assert caught.value.exit_code == 3
    assert not receipt_path(run).exists()


@given(st.text(max_size=40))
def test_a_good_name_stays_in_its_folder(name):
    if check_name(name) is None:
        resolved = os.path.normpath(os.path.join("/base", name))  # noqa: PTH118  (the text is what is tested)
        assert resolved == f"/base/{name}"


def test_the_digest_of_a_folder_is_over_sorted_lines():
    lines = f"{'1' * 64}  a\n{'0' * 64}  b\n"
    found = receipts.content_digest({"b": "0" * 64, "a": "1" * 64})
    assert found == hashlib.sha256(lines.encode()).hexdigest()


def test_a_killed_run_is_carried_as_what_it_is(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request(), factory.request()], never_ended=1, seal=False)
    found = bundle(run, tmp_path / "x.tar.gz").manifest.folders[0]
    assert found.sealed is False and "seal_missing" in found.problems
    unpack(tmp_path / "x.tar.gz", tmp_path / "there")
    assert content(tmp_path / "there" / "run-test") == content(run)
    assert exported(run)


def test_a_run_without_a_manifest_is_carried_too(tmp_path):
    run = factory.make_run(tmp_path / "runs", [factory.request()], seal=False)
    (run / "manifest.json").unlink()
    made = bundle(run, tmp_path / "x.tar.gz")
    assert made.notes and made.notes[0].startswith("which launch it cites is not known")
    assert exported(run)


def test_the_runs_made_on_a_server_are_told_at_its_end_until_they_are_exported(run, tmp_path):
    launch = run.parent / "launches" / studies.SERVED
    other = studies.launch(run.parent / "launches", studies.FAILED, b"nobody asked it anything\n")
    (told,) = runs_not_exported(launch)
    assert told == f"{run} is not exported and verified yet: python -m analysis export {run} --to bundle"
    assert runs_not_exported(other) == ()
    bundle(run, tmp_path / "x.tar.gz")
    assert runs_not_exported(launch) == ()
