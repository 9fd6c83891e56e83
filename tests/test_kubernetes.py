"""The manifests for a cluster say one thing: ports, folders, keys, numbers of workers."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "infra" / "kubernetes"
PORT = 6021
KEY = {"name": "load-test-key", "key": "OPENAI_API_KEY", "optional": True}
# What one of our locustfiles, or Locust itself, understands; each is used below.
LOCUST_OPTIONS = {
    *("--locustfile", "--headless", "--master", "--worker", "--master-bind-port", "--master-host", "--master-port"),
    *("--expect-workers", "--host"),
}


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


ALL = {
    (one["kind"], one["metadata"]["name"]): one
    for name in ("master.yaml", "workers.yaml", "network.yaml", "reader.yaml")
    for one in documents(name)
}
SETTINGS = dict(one.split("=", 1) for one in documents("kustomization.yaml")[0]["configMapGenerator"][0]["literals"])


def pod(kind: str, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = ALL[kind, name]["spec"]["template"]["spec"]
    return spec


def arguments(container: dict[str, Any]) -> dict[str, str]:
    """Options of a container's command, with the settings put in as Kubernetes does."""
    found = {}
    for one in container["args"]:
        name, _, value = one.partition("=")
        found[name] = re.sub(r"\$\((\w+)\)", lambda match: SETTINGS[match[1]], value)
    return found


def options_of_ours() -> set[str]:
    return set(re.findall(r'"(--[a-z-]+)"', (ROOT / "locustfiles" / "_options.py").read_text(encoding="utf-8")))


MASTER = pod("Job", "load-master")["containers"][0]
WORKER = pod("Job", "load-worker")["containers"][0]
OPERATOR = documents("locusttest.yaml")[0]["spec"]


def test_master_service_workers_and_network_policy_name_one_port():
    (service_port,) = ALL["Service", "load-master"]["spec"]["ports"]
    (policy,) = ALL["NetworkPolicy", "load-master"]["spec"]["ingress"]
    ports = {
        int(arguments(MASTER)["--master-bind-port"]),
        int(arguments(WORKER)["--master-port"]),
        *(port["containerPort"] for port in MASTER["ports"]),
        *(service_port["port"], service_port["targetPort"], policy["ports"][0]["port"]),
    }
    assert ports == {PORT}
    assert arguments(WORKER)["--master-host"] == ALL["Service", "load-master"]["metadata"]["name"]


def test_selectors_find_the_pods_they_are_meant_for():
    labels = {
        role: ALL["Job", f"load-{role}"]["spec"]["template"]["metadata"]["labels"] for role in ("master", "worker")
    }
    assert ALL["Service", "load-master"]["spec"]["selector"] == labels["master"]
    policy = ALL["NetworkPolicy", "load-master"]["spec"]
    assert policy["podSelector"]["matchLabels"] == labels["master"]
    assert policy["ingress"][0]["from"] == [{"podSelector": {"matchLabels": labels["worker"]}}]


def test_as_many_workers_are_expected_as_are_started():
    spec = ALL["Job", "load-worker"]["spec"]
    assert spec["parallelism"] == spec["completions"] == int(arguments(MASTER)["--expect-workers"])
    assert OPERATOR["worker"]["replicas"] >= 1


@pytest.mark.parametrize(
    ("container", "spec", "volume"),
    [(MASTER, pod("Job", "load-master"), "persistentVolumeClaim"), (WORKER, pod("Job", "load-worker"), "emptyDir")],
    ids=["master", "worker"],
)
def test_the_run_dir_lies_on_a_volume(container, spec, volume):
    (mount,) = container["volumeMounts"]
    assert arguments(container)["--run-dir"] == mount["mountPath"]
    (there,) = [one for one in spec["volumes"] if one["name"] == mount["name"]]
    assert volume in there
    if volume == "persistentVolumeClaim":
        assert ("PersistentVolumeClaim", there[volume]["claimName"]) in ALL


@pytest.mark.parametrize("container", [MASTER, WORKER], ids=["master", "worker"])
def test_the_key_comes_from_a_secret_and_from_nowhere_else(container):
    (key,) = container["env"]
    assert (key["name"], key["valueFrom"]["secretKeyRef"]) == ("OPENAI_API_KEY", KEY)
    assert "KEY" not in " ".join(SETTINGS)
    assert OPERATOR["env"]["variables"] == container["env"]


def test_every_option_is_one_that_locust_or_this_project_has():
    known = LOCUST_OPTIONS | options_of_ours()
    operator = {word for role in ("master", "worker") for word in shlex.split(OPERATOR[role]["command"])}
    used = {*arguments(MASTER), *arguments(WORKER), *(word for word in operator if word.startswith("--"))}
    assert used <= known
    assert (ROOT / SETTINGS["LOCUSTFILE"]).is_file()
    assert (ROOT / SETTINGS["SCENARIO"]).is_file()


def test_a_worker_has_whole_cores_to_itself_and_time_to_end():
    resources = WORKER["resources"]
    assert resources["requests"] == resources["limits"]
    assert resources["limits"]["cpu"].isdigit()
    for name in ("load-master", "load-worker"):
        assert ALL["Job", name]["spec"]["backoffLimit"] == 0
        assert pod("Job", name)["restartPolicy"] == "Never"
        assert pod("Job", name)["terminationGracePeriodSeconds"] >= 60


def test_the_operators_resource_says_what_the_plain_manifests_say():
    words = shlex.split(OPERATOR["master"]["command"])
    said = {name: value for name, value in zip(words, [*words[1:], ""], strict=True) if name.startswith("--")}
    plain = arguments(MASTER)
    shared = ("--locustfile", "--host", "--scenario", "--label", "--run-dir")
    assert {name: said[name] for name in shared} == {name: plain[name] for name in shared}
    assert "--headless" in words
    assert not {"--master", "--worker", "--expect-workers"} & set(words), "the operator adds these"
    mounts = {(one["mountPath"], one["target"]) for one in OPERATOR["volumeMounts"]}
    assert mounts == {("/load/runs", "master"), ("/load/shards", "worker")}
    assert {one["name"] for one in OPERATOR["volumes"]} == {one["name"] for one in OPERATOR["volumeMounts"]}


def test_every_manifest_is_listed_or_says_how_it_is_applied():
    listed = set(documents("kustomization.yaml")[0]["resources"])
    alone = {"kustomization.yaml", "reader.yaml", "locusttest.yaml"}
    assert listed | alone == {path.name for path in FOLDER.glob("*.yaml")}
    text = (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")
    for name in alone - {"kustomization.yaml"}:
        assert f"infra/kubernetes/{name}" in text
