"""What users get wrong: each ends with what was seen, where, and what to do, under the exit code of the contract."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.__main__ import main as analysis
from infra.__main__ import main as infra
from study.__main__ import main as study
from tests.run_factory import make_run, request

HUGE = 1 << 40


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files and folders of the wrong kind; no mistake writes into them."""
    tmp_path = tmp_path_factory.mktemp("mistakes")
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").write_text("not what was asked for\n")
    (tmp_path / "latin.toml").write_bytes(b'seed = 1\nname = "caf\xe9"\n')
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(bytes(range(256)) * 40)[:-40])
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("huge.toml", "huge.json"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(HUGE)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.json").write_text("{}")
    make_run(tmp_path, [request()], run_id="run-a")
    return tmp_path


MISTAKES: list[tuple[Callable[..., int], str, int, str]] = [
    (analysis, "summary {here}/study", 2, "{here}/study: is a study and no run; name one of the runs in its runs/"),
    (analysis, "summary {here}/text.txt", 2, "{here}/text.txt: is no folder; give the path of a run folder"),
    (analysis, "check {here}/empty", 2, "{here}/empty: is no run folder: it has no manifest.json"),
    (analysis, "check {here}/loop", 2, "{here}/loop: is no folder"),
    (analysis, "compare {here}/run-a", 2, "{here}/run-a: is a run and no study; name the run to compare it with"),
    (analysis, "audit {here}/huge.json", 2, "{here}/huge.json: is larger than 64 MiB; give the saved observations"),
    (analysis, "audit {here}/latin.toml", 2, "{here}/latin.toml: byte 20 is no UTF-8 text"),
    (analysis, "audit {here}/empty", 2, "{here}/empty: is a folder; give the saved observations"),
    (analysis, "audit {here}/loop", 2, "{here}/loop: cannot be read (Too many levels of symbolic links)"),
    (
        analysis,
        "unpack {here}/text.txt --out {here}/out",
        2,
        "{here}/text.txt: is no bundle: it begins with b'not wh",
    ),
    (analysis, "unpack {here}/cut.tar.gz --out {here}/out", 1, "{here}/cut.tar.gz: this bundle is refused: "),
    (analysis, "trace --run {here}/run-a", 2, "{here}/run-a: it holds no traces; name a FILE"),
    (
        analysis,
        "report {here}/run-a --out {here}/run-a/x.html",
        2,
        "{here}/run-a/x.html: it lies inside the run",
    ),
    (
        analysis,
        "export {here}/run-a --to csv --out {here}/run-a/x",
        2,
        "lies in a folder of evidence; write it",
    ),
    (analysis, "export {here}/text.txt --to csv", 2, "{here}/text.txt: is no run and no study"),
    (
        analysis,
        "list {here}/text.txt",
        2,
        "{here}/text.txt: cannot be listed (Not a directory); give the path",
    ),
    (infra, "launch {here}/latin.toml", 2, "{here}/latin.toml: line 2: byte 0xe9 is not UTF-8. Save it as UTF-8"),
    (infra, "launch {here}/huge.toml", 2, "{here}/huge.toml: is larger than 1 MiB. Name a recipe's file"),
    (infra, "launch {here}/empty", 2, "'{here}/empty': is no recipe. Name an arm, or a recipe's file"),
    (infra, "probe 127.0.0.1:1", 2, "base URL '127.0.0.1:1': it does not begin with http:// or https://"),
    (study, "check {here}/latin.toml", 2, "{here}/latin.toml:2: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    (study, "check {here}/huge.toml", 2, "{here}/huge.toml: is larger than 1 MiB; name another file"),
    (study, "check {here}/loop", 2, "{here}/loop: cannot be read (Too many levels of symbolic links); check the path"),
    (study, "run scenarios/smoke.toml", 2, "scenarios/smoke.toml: is no study: it names no arms; run it with locust"),
]


@pytest.mark.parametrize(("command", "words", "code", "said"), MISTAKES, ids=[one[1] for one in MISTAKES])
def test_a_mistake_is_said_with_its_place_and_what_to_do(here, capsys, command, words, code, said):
    assert command(words.format(here=here).split()) == code
    told = capsys.readouterr()
    assert said.format(here=here) in told.err
    assert "Traceback" not in told.err + told.out


@pytest.mark.parametrize(
    ("command", "words", "usage", "said"),
    [
        (analysis, "check a b", "python -m analysis check", "unrecognized arguments: b"),
        (analysis, "sweep a --nosuch", "python -m analysis sweep", "unrecognized arguments: --nosuch"),
        (infra, "probe http://h extra", "python -m infra probe", "unrecognized arguments: extra"),
        (infra, "arms extra", "python -m infra arms", "unrecognized arguments: extra"),
        (study, "check a b", "python -m study check", "unrecognized arguments: b"),
        (infra, "launch cpu-f32 --port x", "python -m infra launch", "'x' is not a port: give 1 to 65535"),
        (infra, "gpu --interval x", "python -m infra gpu", "'x' is no number of seconds above 0"),
        (infra, "preflight cpu-f32 --n-devices x", "python -m infra preflight", "'x' is no whole number above 0"),
        (infra, "preflight cpu-f32 --overhead-gib x", "python -m infra preflight", "'x' is no size above 0"),
        (study, "run f --budget x", "python -m study run", "'x' is not a number of minutes above 0"),
    ],
)
def test_what_a_command_does_not_take_is_said_beside_the_usage_of_that_command(capsys, command, words, usage, said):
    with pytest.raises(SystemExit) as ended:
        command(words.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(f"usage: {usage} ")
    assert said in told
