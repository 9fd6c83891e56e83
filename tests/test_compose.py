"""compose.yml: images pinned by version, mounts that are there, digests asked for and never invented."""

import hashlib
import http.server
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from infra.boards.image_digests import FILES, main, references
from infra.boards.image_registry import ImageError, parse_reference

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "compose.yml").read_text())
SERVICES = COMPOSE["services"]
MANIFEST = b'{"schemaVersion": 2, "manifests": []}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"


@contextmanager
def registry(*, token: str | None = None, status: int = 200, said: str = DIGEST) -> Iterator[str]:
    """A registry on loopback that serves one manifest, if asked with the token it hands out."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path.startswith("/token"):
                return self.reply(200, json.dumps({"token": token}).encode())
            if token is not None and self.headers.get("Authorization") != f"Bearer {token}":
                realm = f"http://{self.headers['Host']}/token"
                return self.reply(401, b"", ("WWW-Authenticate", f'Bearer realm="{realm}",service="here"'))
            return self.reply(status, MANIFEST, ("Docker-Content-Digest", said))

        def reply(self, code, body, *headers):
            self.send_response(code)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def no_docker(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def fake_docker(folder: Path, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "docker").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "docker").chmod(0o755)
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"


def test_every_image_is_pinned_by_a_version():
    named = [reference for file in FILES for _, reference in references(file)]
    assert len(named) >= 8
    assert all(re.search(r"\d", one.tag) for one in named)
    images = [service["image"] for service in SERVICES.values()]
    assert all(parse_reference(image).tag for image in images)


@pytest.mark.parametrize("text", ["grafana/grafana", "grafana/grafana:latest", "vllm/vllm-openai:nightly", "a:b:c", ""])
def test_an_image_without_a_version_is_refused(text):
    with pytest.raises(ImageError, match="pin the image"):
        parse_reference(text)


def test_the_stack_has_its_parts_and_a_profile_for_each_engine():
    assert {"prometheus", "grafana", "locust-master", "locust-worker", "client-metrics"} <= SERVICES.keys()
    for engine in ("sglang", "vllm", "llamacpp"):
        assert SERVICES[engine]["profiles"] == [engine]
        assert SERVICES[engine]["networks"]["default"]["aliases"] == ["engine"]
        assert "--port=8000" in SERVICES[engine]["command"]


def test_what_is_mounted_or_built_from_is_there_and_named_volumes_are_declared():
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            if source.startswith("./") and source not in {"./runs", "./models"}:  # made by their users
                assert (ROOT / source).exists(), source
            elif not source.startswith((".", "/")):
                assert source in COMPOSE["volumes"]
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_every_port_is_published_on_loopback_alone():
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


def test_prometheus_finds_every_service_by_its_name_and_port():
    for job in ("engine", "client", "dcgm", "node"):
        for folder in ("infra/compose/targets", "infra/prometheus/targets"):
            (group,) = json.loads((ROOT / folder / f"{job}.json").read_text())
            assert all(re.fullmatch(r"[\w.-]+:\d+", target) for target in group["targets"])
    names = set(SERVICES) | {"engine"}
    for path in (ROOT / "infra/compose/targets").glob("*.json"):
        for group in json.loads(path.read_text()):
            assert {target.split(":")[0] for target in group["targets"]} <= names


def test_the_dockerfile_copies_what_is_there():
    text = (ROOT / "infra/compose/Dockerfile").read_text()
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_a_digest_the_registry_gives_is_written_behind_the_tag(tmp_path, no_docker, capsys):
    with registry(token="t0") as host:
        file = tmp_path / "compose.yml"
        text = f"services:\n  a:\n    image: {host}/team/app:1.2  # why\n  b:\n    image: mine:0.1  # built here\n"
        file.write_text(text)
        assert main([str(file), "--json"]) == 0
        assert file.read_text() == text.replace("app:1.2", f"app:1.2@{DIGEST}")
        (row,) = json.loads(capsys.readouterr().out)["images"]
        assert (row["digest"], row["state"]) == (DIGEST, "pinned")
        assert main([str(file), "--check"]) == 0


def test_a_tag_that_moved_is_told_and_replaced_only_when_asked(tmp_path, no_docker, capsys):
    with registry() as host:
        file = tmp_path / "compose.yml"
        file.write_text(f"    image: {host}/team/app:1.2@sha256:{'0' * 64}\n")
        assert main([str(file)]) == 1
        assert "moved" in capsys.readouterr().out
        assert "0" * 64 in file.read_text()
        assert main([str(file), "--renew"]) == 0
        assert DIGEST in file.read_text()


@pytest.mark.parametrize(
    ("answer", "why"), [({"status": 404}, "HTTP 404"), ({"said": f"sha256:{'1' * 64}"}, "its manifest has")]
)
def test_no_digest_is_written_where_none_was_given(tmp_path, no_docker, capsys, answer, why):
    with registry(**answer) as host:
        file = tmp_path / "compose.yml"
        file.write_text(f"    image: {host}/team/app:1.2\n")
        assert main([str(file)]) == 1
        assert file.read_text() == f"    image: {host}/team/app:1.2\n"
        said = capsys.readouterr().out
        assert "docker is not installed" in said and why in said


def test_docker_is_believed_where_it_answers_with_a_digest_and_not_otherwise(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    file = tmp_path / "compose.yml"
    file.write_text("    image: 127.0.0.1:9/team/app:1.2\n")
    fake_docker(tmp_path / "bin", "echo 'unknown flag: --format' >&2; exit 1")
    assert main([str(file)]) == 1
    assert "docker has no buildx" in capsys.readouterr().out
    fake_docker(tmp_path / "bin", "echo latest")
    assert main([str(file)]) == 1
    fake_docker(tmp_path / "bin", f"echo {DIGEST}")
    assert main([str(file)]) == 0
    assert file.read_text() == f"    image: 127.0.0.1:9/team/app:1.2@{DIGEST}\n"


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path, capsys):
    assert main([str(tmp_path / "none.yml")]) == 2
    assert "none.yml" in capsys.readouterr().err
