"""Provenance: packages, names, files, backends, container, GPUs, clock; what is missing by name; no secret anywhere."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_folders as make
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.fetch import Fetched
from infra.launching.models import file_sha256
from infra.provenance.clock_offset import Answer, clock_offset, offset_within
from infra.provenance.container import container, foreign
from infra.provenance.model_hashes import model_hashes, shown_name, snapshot_of
from infra.provenance.provenance import Host, Provenance, gather, probe_host
from infra.provenance.server_identity import names_side_by_side

DIGEST = "registry.example/sglang@sha256:" + "a" * 64
CLOCK = {"offset_s": 0.0, "bound_s": 0.0, "method": "one host, one clock", "why": None}
GPUS = {
    "gpus": [{"index": i, "name": "NVIDIA RTX 4000", "memory_bytes": 24467 << 20} for i in range(2)],
    "links": [{"between": [0, 1], "link": "PHB"}],
    "driver": "570.86.15",
    "missing": None,
}
PACKAGES = {"sglang": "0.5.17", "flashinfer-python": "0.6.1", "torch": "2.11.0+cu130", "python": "3.12"}
# As a real SGLang 0.5.17 answered, cut to what is read.
SGLANG = {
    "models": {"data": [{"id": "smol", "root": "smol", "owned_by": "sglang", "max_model_len": 4096}]},
    "server_info": {"model_path": "/models/smol", "tokenizer_path": "/models/smol", "version": "0.5.17"},
    "model_info": {"model_path": "/models/smol", "architectures": ["LlamaForCausalLM"]},
}
SETTINGS = {
    "attention_backend": "flashinfer",
    "cuda_graph_config.decode.backend": "full",
    "sampling_backend": "pytorch",
}


def host(**changes: Any) -> Host:
    fields: dict[str, Any] = {
        "packages": PACKAGES,
        "container": {"runs_in_one": True, "digest": DIGEST, "id": None, "source": "arm", "why": None},
        "gpus": GPUS,
        "clock": CLOCK,
    }
    return Host(**(fields | changes))


def gathered(tmp_path: Path, **changes: Any) -> Provenance:
    fields: dict[str, Any] = {"host": host(), "bodies": SGLANG, "settings": SETTINGS, "asked": "smol"}
    fields["target"] = tmp_path / "t"
    if not fields["target"].exists():
        make.folder(fields["target"], shapes={"lm_head.weight": ("BF16", (64, 8))})
    return gather(**(fields | changes))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_with_everything_told_nothing_is_missing(tmp_path: Path) -> None:
    found = gathered(tmp_path, planned_gpus={"count": 2, "name": "RTX 4000", "memory_mib": 24467, "link": "PCIe"})
    assert found.missing == ()
    assert found.server["packages"]["named"] == {
        "engine": "sglang 0.5.17",
        "flashinfer": "flashinfer-python 0.6.1",
        "torch": "torch 2.11.0+cu130",
        "cuda": "cuda 13.0",
        "driver": "nvidia_driver 570.86.15",
    }
    assert found.server["backends"]["attention"] == {"attention_backend": "flashinfer"}
    assert found.server["backends"]["graph"] == {"cuda_graph_config.decode.backend": "full"}
    assert found.server["container_digest"] == DIGEST
    assert found.hardware["gpu"] == "2 x NVIDIA RTX 4000 24467 MiB, linked by PHB"
    assert found.hardware["gpu_plan_differences"] == []
    weights = tmp_path / "t" / "model.safetensors"
    assert found.model["files"]["target"]["files"]["model.safetensors"] == file_sha256(weights)
    assert found.model["revision"].startswith("sha256:")


def test_name_asked_name_served_and_architecture_stand_side_by_side(tmp_path: Path) -> None:
    names = gathered(tmp_path).model["names"]
    assert (names["asked"], names["served"], names["loaded_from"]) == ("smol", "smol", "/models/smol")
    assert (names["architecture"], names["tokenizer"], names["differ"]) == ("LlamaForCausalLM", "/models/smol", [])
    other = names_side_by_side("gpt-4", SGLANG)
    assert other["differ"] == ["asked for 'gpt-4', served is 'smol'"]


def test_another_engines_answers_name_the_same_things() -> None:
    vllm = {
        "models": {"data": [{"id": "q", "root": "Qwen/Q", "owned_by": "vllm"}]},
        "server_info": {"vllm_config": {"model_config": {"model": "Qwen/Q", "architectures": ["Qwen2ForCausalLM"]}}},
    }
    assert names_side_by_side("q", vllm)["architecture"] == "Qwen2ForCausalLM"
    llama = {"models": {"data": [{"id": "m", "meta": {"n_vocab": 1}}]}, "props": {"model_path": "m.gguf"}}
    found = names_side_by_side("m", llama)
    assert (found["loaded_from"], found["architecture"]) == ("m.gguf", None)
    assert names_side_by_side("m", {"models": [], "server_info": "text"})["served"] is None


def test_everything_unknown_is_missing_by_name_with_its_reason(tmp_path: Path) -> None:
    nobody = host(
        packages={},
        why_no_packages="the server was not started here",
        container=foreign(None),
        gpus={"gpus": [], "missing": "the server runs on another host"},
        clock={"offset_s": None, "bound_s": None, "method": None, "why": "no answer: refused"},
    )
    found = gather(host=nobody, bodies={}, settings={}, asked="m")
    missing = {one.what: one.why for one in found.missing}
    assert set(missing) == {
        *(f"server.packages.{what}" for what in ("engine", "flashinfer", "torch", "cuda", "driver")),
        *("server.backends.attention", "server.backends.graph", "model.architecture", "model.revision"),
        *("container_digest", "clock_offset", "gpu"),
    }
    assert missing["server.packages.torch"] == "the server was not started here"
    assert "name it in the arm" in missing["container_digest"]
    assert missing["gpu"] == "the server runs on another host"


def test_an_engine_without_cuda_needs_no_cuda_packages(tmp_path: Path) -> None:
    plain = host(packages={"xllamacpp": "2026.10"}, container={"runs_in_one": False, "digest": None})
    found = gathered(tmp_path, host=plain, bodies={}, settings={"flash_attn_type": "enabled"})
    assert {one.what for one in found.missing} == {"model.architecture"}


def test_a_server_of_another_version_than_its_interpreter_is_told(tmp_path: Path) -> None:
    found = gathered(tmp_path, host=host(packages=PACKAGES | {"sglang": "0.5.19"}))
    assert found.server["packages"]["differ"] == ["sglang: the server says 0.5.17, its interpreter has 0.5.19"]


def test_a_host_that_is_not_as_planned_is_told(tmp_path: Path) -> None:
    found = gathered(tmp_path, planned_gpus={"count": 4, "name": "H100"})
    assert found.hardware["gpu_plan_differences"][0] == "2 GPUs are here, 4 are planned"


SECRETS = ("sk-planted-7c21d0f4", "hf_PlantedToken0123456789", "planted-admin-key-991")


def test_no_planted_secret_comes_through(tmp_path: Path) -> None:
    sk, hf, admin = SECRETS
    bodies = {
        **SGLANG,
        "server_info": SGLANG["server_info"]
        | {"api_key": sk, "admin_api_key": admin, "launch_command": f"x --api-key {sk}"},
        "model_info": {"model_path": f"https://user:{admin}@hub.example/m?token={hf}", "architectures": [hf]},
        "version": {"version": sk},
    }
    settings = {"attention_backend": f"Bearer {sk}", "kv_cache_dtype": hf, "api_key": admin}
    dirty = host(
        packages=PACKAGES | {"torch": f"2.0 token={hf}"},
        why_no_packages=f"asked with {hf}",
        container={"runs_in_one": True, "digest": None, "why": f"HF_TOKEN={hf}"},
        gpus={"gpus": [], "missing": f"Authorization: Bearer {sk}"},
        clock=CLOCK | {"offset_s": None, "why": f"http://u:{admin}@h/?api_key={sk}"},
    )
    found = gathered(tmp_path, bodies=bodies, settings=settings, host=dirty)
    text = json.dumps([found.server, found.model, found.hardware, [one.model_dump() for one in found.missing]])
    for secret in SECRETS:
        assert secret not in text
    assert "[redacted]" in text


# files


def test_digests_are_kept_by_path_size_and_time_of_change(tmp_path: Path) -> None:
    path = make.folder(tmp_path / "m", shapes={"a": ("BF16", (2, 2))})
    asked: list[str] = []

    def hashing(file: Path) -> str:
        asked.append(file.name)
        return file_sha256(file)

    cache = tmp_path / "hashes.json"
    first = model_hashes(path, cache=cache, hashing=hashing)
    assert sorted(asked) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert model_hashes(path, cache=cache, hashing=hashing) == first
    assert len(asked) == 3
    weights = path / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    os.utime(weights, ns=(stamp + 1_000_000, stamp + 1_000_000))
    second = model_hashes(path, cache=cache, hashing=hashing)
    assert asked[3:] == ["model.safetensors"]
    assert second["sha256"] != first["sha256"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"/x": 5}'])
def test_a_broken_cache_costs_time_and_nothing_else(tmp_path: Path, content: str) -> None:
    path, cache = make.folder(tmp_path / "m"), tmp_path / "hashes.json"
    cache.write_text(content)
    assert model_hashes(path, cache=cache)["files"]["config.json"] == file_sha256(path / "config.json")
    unwritable = Path("/proc/nowhere/hashes.json")
    assert model_hashes(path, cache=unwritable)["files"]["config.json"] == file_sha256(path / "config.json")


def test_weights_can_be_left_out_and_are_then_missing(tmp_path: Path) -> None:
    found = gathered(tmp_path, hash_weights=False)
    assert [one.what for one in found.missing] == ["target.weights_sha256"]
    assert found.model["files"]["target"]["files_left_out"] == ["model.safetensors"]


def test_a_snapshot_folder_names_its_repository_and_commit(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    path = make.folder(tmp_path / "models--Qwen--Qwen2.5-32B" / "snapshots" / commit)
    assert snapshot_of(path) == ("Qwen/Qwen2.5-32B", commit)
    assert snapshot_of(path / "config.json") == ("Qwen/Qwen2.5-32B", commit)
    assert shown_name(path) == "Qwen/Qwen2.5-32B@0123456789ab"
    assert snapshot_of(tmp_path) is None
    found = gathered(tmp_path, target=path)
    assert (found.model["revision"], found.model["files"]["target"]["repository"]) == (commit, "Qwen/Qwen2.5-32B")


# container


def proc(root: Path, cgroup: str, mountinfo: str = "", mark: str | None = None) -> Path:
    (root / "proc" / "7").mkdir(parents=True)
    (root / "proc" / "7" / "cgroup").write_text(cgroup)
    (root / "proc" / "7" / "mountinfo").write_text(mountinfo)
    if mark:
        (root / mark).write_text("")
    return root


ID = "c0ffee" + "0" * 58


@pytest.mark.parametrize(
    ("cgroup", "mountinfo", "mark", "inside", "identity"),
    [
        ("0::/user.slice/session-1.scope\n", "", None, False, None),
        (f"0::/system.slice/docker-{ID}.scope\n", "", None, True, ID),
        (f"4:memory:/docker/{ID}\n", "", None, True, ID),
        ("0::/\n", f"9 8 0:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 x rw\n", None, True, ID),
        # the host of containers holds their mounts and is in none of them
        (
            "0::/init.scope\n",
            f"9 8 0:1 / /var/lib/docker/containers/{ID}/mounts/shm rw - tmpfs x rw\n",
            None,
            False,
            None,
        ),
        ("0::/\n", "", ".dockerenv", True, None),
    ],
)
def test_whether_a_process_runs_in_a_container_is_seen(
    tmp_path: Path, cgroup: str, mountinfo: str, mark: str | None, inside: bool, identity: str | None
) -> None:
    found = container(None, environment={}, pid=7, root=proc(tmp_path, cgroup, mountinfo, mark))
    assert (found["runs_in_one"], found["id"], found["digest"]) == (inside, identity, None)
    if inside:
        assert "digest is not told; name it in the arm" in found["why"]
    else:
        assert found["why"] == "it runs in no container"


def test_a_digest_comes_from_the_arm_or_from_who_started_the_container(tmp_path: Path) -> None:
    root = proc(tmp_path, f"0::/docker/{ID}\n")
    assert container(DIGEST, environment={}, pid=7, root=root)["source"] == "arm"
    told = container(None, environment={"IMAGE_DIGEST": DIGEST}, pid=7, root=root)
    assert (told["digest"], told["source"]) == (DIGEST, "environment variable IMAGE_DIGEST")
    assert container(None, environment={"IMAGE_DIGEST": "latest"}, pid=7, root=root)["digest"] is None
    assert container(None, environment={}, pid=8, root=root)["runs_in_one"] is None
    assert foreign(DIGEST)["digest"] == DIGEST


# clock


def server_clock(offset_s: float, rtt_s: float = 0.02) -> tuple[Callable[..., Fetched], Callable[[float], None]]:
    """A server whose clock is ``offset_s`` ahead, and a client's clock that moves as it asks and sleeps."""
    import email.utils

    now = [1_800_000_000.3]

    def get(url: str, **_: Any) -> Fetched:
        sent = now[0]
        now[0] += rtt_s
        date = email.utils.formatdate(int(sent + rtt_s / 2 + offset_s), usegmt=True)
        common = {"url": url, "send_monotonic_s": 0.0, "receive_monotonic_s": 0.0, "complete": True, "error": None}
        return Fetched(send_unix_s=sent, receive_unix_s=now[0], status=200, headers={"date": date}, body=b"", **common)

    def sleep(seconds: float) -> None:
        now[0] += seconds

    return get, sleep


@pytest.mark.parametrize("offset_s", [0.0, 0.4, -3.25, 86400.0])
def test_the_offset_lies_within_its_bound_and_the_bound_is_below_the_dates_resolution(offset_s: float) -> None:
    get, sleep = server_clock(offset_s)
    found = clock_offset("http://gpu-host:30000/health", get=get, sleep=sleep)
    assert abs(found["offset_s"] - offset_s) <= found["bound_s"] + 1e-6
    assert found["bound_s"] < 0.1
    assert "1 s resolution" in found["method"]


@given(st.floats(-1000, 1000), st.floats(0.0, 0.9), st.lists(st.floats(0, 5), min_size=1, max_size=8))
def test_the_true_offset_is_never_outside_the_bound(offset_s: float, delay_s: float, asked_at: list[float]) -> None:
    answers = []
    for t in asked_at:
        written = t + delay_s / 3
        answers.append(Answer(t, t + delay_s, float((written + offset_s) // 1)))
    found = offset_within(answers)
    assert found is not None
    assert abs(found[0] - offset_s) <= found[1] + 1e-6


def test_one_host_has_one_clock_and_is_not_asked() -> None:
    def never(*_: Any, **__: Any) -> Fetched:
        raise AssertionError("asked")

    for url in ("http://127.0.0.1:8000", "http://localhost/x", "http://[::1]:8"):
        assert clock_offset(url, get=never)["bound_s"] == 0.0


def test_dates_that_contradict_each_other_give_no_offset() -> None:
    assert offset_within([Answer(0.0, 0.1, 100.0), Answer(0.2, 0.3, 200.0)]) is None
    get, sleep = server_clock(0.0)
    other, _ = server_clock(50.0)
    turn = iter([get, other] * 10)
    found = clock_offset("http://h", get=lambda url, **_: next(turn)(url), sleep=sleep)
    assert (found["offset_s"], "several servers answer" in found["why"]) == (None, True)


def test_a_server_that_tells_no_date_or_nothing_has_no_offset() -> None:
    found = clock_offset("http://192.0.2.1:1", get=lambda url, **_: refused(url))
    assert found["why"] == "no answer: refused"
    get, sleep = server_clock(0.0)

    def dateless(url: str, **_: Any) -> Fetched:
        from dataclasses import replace

        return replace(get(url), headers={"Date": "yesterday"})

    assert clock_offset("http://h", get=dateless, sleep=sleep)["why"] == "the server's answers carry no readable Date"


def refused(url: str) -> Fetched:
    common = {"send_unix_s": 0.0, "receive_unix_s": 0.0, "send_monotonic_s": 0.0, "receive_monotonic_s": 0.0}
    return Fetched(url=url, status=None, headers={}, body=None, complete=False, error="refused", **common)


def test_this_host_is_asked_for_what_it_started_and_not_for_what_others_run() -> None:
    import sys

    mine = probe_host("http://127.0.0.1:9", program=(sys.executable, "-m", "x"), launched_here=True)
    assert mine.packages["python"]
    assert mine.clock["bound_s"] == 0.0
    theirs = probe_host("http://127.0.0.1:9", program=None, launched_here=False)
    assert theirs.packages == {}
    assert theirs.container["runs_in_one"] is None
