"""No key, token or password reaches a file, and what is no secret stays."""

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import evidence_samples as sample
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evidence.errors import EvidenceError
from evidence.lines import encode
from evidence.redact import (
    KnownSecrets,
    collect_secrets,
    redact_argv,
    redact_body,
    redact_environment,
    redact_headers,
    redact_json,
    redact_shell,
    redact_text,
    secret_name,
)
from evidence.verify import verify

KEY = "Zq7Planted0Key"

# Secrets of any look: letters and digits as keys have, but none of the words this file itself uses.
secrets = st.text("abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789-_.", min_size=6, max_size=40).map(
    lambda tail: "Zq7" + tail
)

ARGV: list[Callable[[str], list[str]]] = [
    lambda key: ["serve", "--api-key", key],
    lambda key: ["serve", f"--api-key={key}", "model"],
    lambda key: ["serve", "--api-key", key, key],
    lambda key: ["serve", "--hf-token", key, "--port", "1"],
    lambda key: ["serve", "--token", key],
    lambda key: ["locust", "--header", f"Authorization=Bearer {key}"],
    lambda key: ["locust", "--header", f"X-Api-Key={key}", "--header", f"Cookie={key}"],
    lambda key: ["locust", f"--header=X-Session={key}"],
    lambda key: ["curl", "-H", f"Authorization: Bearer {key}"],
    lambda key: ["env", f"OPENAI_API_KEY={key}", f"HF_TOKEN={key}"],
    lambda key: ["locust", "--host", f"http://user:{key}@example.org/x"],
    lambda key: ["locust", "--host", f"http://example.org/x?a=1&api_key={key}"],
    lambda key: ["locust", "--extra-body", json.dumps({"a": [{"api_key": key}]})],
    lambda key: ["curl", f"Bearer {key}"],
    lambda key: [f"sk-{key}", f"hf_{key.replace('.', 'x')}"],
]


@given(key=secrets, shape=st.sampled_from(ARGV))
def test_a_key_on_a_command_line_is_never_kept(key: str, shape: Callable[[str], list[str]]) -> None:
    argv = shape(key)
    redacted = redact_argv(argv)
    assert not any(key in word for word in redacted), redacted
    assert len(redacted) == len(argv)
    assert redact_argv(redacted) == redacted
    assert key not in redact_shell(" ".join(f"'{word}'" for word in argv))


@given(
    key=secrets, name=st.sampled_from(["api_key", "admin_api_key", "apiKey", "hf_token", "password", "client-secret"])
)
def test_a_key_in_a_field_is_never_kept_at_any_depth(key: str, name: str) -> None:
    value = {"server": [{"args": {name: key, "port": 1}}, {name: [key, {"x": key}]}], "command": ["--api-key", key]}
    redacted = redact_json(value)
    assert key not in json.dumps(redacted)
    assert redacted["server"][0]["args"]["port"] == 1


@pytest.mark.parametrize(
    "name",
    ["max_tokens", "n_prompt_tokens", "bos_token", "eos_token_id", "tokenizer", "timings_per_token", "token_ids",
     "n_predict", "key_size", "seed", "image_token", "skip_special_tokens", "monkey", "author"],
)  # fmt: skip
def test_a_count_or_a_special_token_is_no_secret(name: str) -> None:
    assert not secret_name(name)
    assert redact_json({name: "<|im_end|>"}) == {name: "<|im_end|>"}


@pytest.mark.parametrize(
    "value",
    [
        {"api_key": None, "password": "", "use_token": True},
        {"fim_xyz_token": "<|fim|>", "n_new_token": 5},
        [],
        "",
        0,
        None,
    ],
)
def test_absent_empty_and_switches_stay_as_they_are(value: Any) -> None:
    assert redact_json(value) == value


def test_a_secret_that_looks_like_a_flag_is_a_secret() -> None:
    assert redact_argv(["serve", "--api-key", "-abc", "--port", "1"]) == (
        "serve",
        "--api-key",
        "[redacted]",
        "--port",
        "1",
    )


def test_a_manifest_loses_secrets_by_name_even_where_no_one_named_them(tmp_path: Path) -> None:
    run = sample.create(
        tmp_path,
        options={"header": [f"X-Session={KEY}"]},
        server={"args": {"api_key": KEY}},
        arm={"command": ["serve", "--api-key", KEY]},
        environment={"HF_TOKEN": KEY},
        note=f"curl -H 'Authorization: Bearer {KEY}'",
    )
    run.server_body("server_info", json.dumps({"admin_api_key": KEY}).encode())
    run.close()
    assert not any(KEY in file.read_text() for file in run.path.rglob("*.*") if file.is_file())
    assert not any(KEY in file.read_text() for file in (run.path / "server").iterdir())


def test_a_prompt_that_holds_a_key_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(EvidenceError, match="a prompt holds a key of this process"):
        sample.create(tmp_path, secrets=("code_01",))
    assert list(tmp_path.iterdir()) == []


def test_ordinary_words_stay() -> None:
    text = "The task-force took a basic understanding of a bearer, one token at a time; risk-averse, http://host/v?q=1"
    assert redact_text(text) == text
    assert redact_argv(["serve", "model", "--port", "1", "-c", "2048", "--max-tokens", "5"])[-1] == "5"
    command = "engine --port 1 --arg 'a b'"
    assert redact_shell(command) == command


def test_urls_lose_their_password_and_keep_the_rest() -> None:
    assert redact_text("https://me:pw@host:8/x") == "https://[redacted]@host:8/x"
    assert redact_text("http://h/x?token=abc&n=1&X-Amz-Signature=ff") == (
        "http://h/x?token=[redacted]&n=1&X-Amz-Signature=[redacted]"
    )


def test_headers_lose_keys_and_keep_their_names() -> None:
    headers = {"Authorization": KEY, "X-API-Key": KEY, "Set-Cookie": KEY, "Server": "llama.cpp", "Date": "now"}
    redacted = redact_headers(headers)
    assert KEY not in str(redacted)
    assert list(redacted) == list(headers)
    assert redacted["Server"] == "llama.cpp"


def test_of_the_environment_only_what_explains_a_measurement_is_kept() -> None:
    environment = {
        "OPENAI_API_KEY": KEY,
        "HF_TOKEN": "",
        "AWS_SECRET_ACCESS_KEY": KEY,
        "VLLM_API_KEY": KEY,
        "LOCUST_HEADER": f"X-Session={KEY}",
        "HTTPS_PROXY": f"http://u:{KEY}@proxy:1",
        "OMP_NUM_THREADS": "1",
        "PATH": "/bin",
        "HOME": "/root",
    }
    assert redact_environment(environment) == {
        "HTTPS_PROXY": "http://[redacted]@proxy:1",
        "LOCUST_HEADER": "X-Session=[redacted]",
        "OMP_NUM_THREADS": "1",
        "OPENAI_API_KEY": "[redacted]",
        "VLLM_API_KEY": "[redacted]",
    }


def test_a_servers_answer_without_secrets_stays_to_the_byte() -> None:
    for body in (b'{"a":  1, "bos_token": "<s>"}', b"<html>\xff</html>", b"", b"[" * 100_000, b"NaN"):
        assert redact_body(body) == (body, False)
    body, changed = redact_body(json.dumps({"api_key": KEY, "x": [1]}).encode())
    assert changed
    assert json.loads(body) == {"api_key": "[redacted]", "x": [1]}


def test_known_secrets_are_collected_from_what_the_process_was_given() -> None:
    found = collect_secrets(
        {"OPENAI_API_KEY": KEY, "PATH": "/bin", "HF_TOKEN": ""}, {"X-Session": "abcdefgh", "A": "b"}
    )
    assert found == (KEY, "abcdefgh")
    assert KnownSecrets([f"Bearer {KEY}"]).mask(f"x {KEY} y".encode()) == b"x " + b"*" * len(KEY) + b" y"
    assert KnownSecrets(["EMPTY"]).mask(b"EMPTY") == b"EMPTY"  # a word, and no secret


@settings(max_examples=25, deadline=None)
@given(key=secrets, cut=st.integers(0, 8))
def test_a_planted_key_reaches_no_file_of_a_run(key: str, cut: int) -> None:
    """The key stands in every free place of every record, and in raw segments across their border."""
    with tempfile.TemporaryDirectory() as scratch:
        run = sample.create(
            Path(scratch),
            3,
            secrets=(f"Bearer {key}",),
            note=f"used {key}",
            options={"header": [f"Authorization=Bearer {key}"], "host": f"http://u:{key}@h"},
            server={"server_info": {"args": {"api_key": key}}, "said": key},
            arm={"command": ["serve", "--api-key", key]},
            environment={"VLLM_API_KEY": key},
        )
        run.server_body("server_info", json.dumps({"api_key": key, "echo": f"key {key}"}).encode())
        run.server_body("page.html", f"<p>{key}</p>".encode())
        run.scrape(sample.scrape(body=f'a{{key="{key}"}} 1\n', headers={"set-cookie": key}))
        run.notice(f"the server said {key}")
        worker = run.worker(0)
        worker.started(sample.started(0))
        wire = worker.wire(0, [(None, 1, f"data: {key[:cut]}".encode()), (None, 2, f"{key[cut:]}\n\n".encode())])
        worker.ended(
            sample.ended(
                0,
                wire=wire,
                outcome="http_error",
                error={"kind": "auth", "message": f"Incorrect API key provided: {key}", "body": f"<{key}>"},
                output_text=f"your key is {key}",
                server_fields={"echo": [{"key": f"é{key}"}], key: 1},
            )
        )
        seal = run.seal()
        for file in run.path.rglob("*"):
            if file.is_file():
                assert key.encode() not in file.read_bytes(), file
        assert any("a secret was replaced" in text for text in seal.noticed)
        assert {problem.code for problem in verify(run.path)} == {"planned_not_started"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/home/someone/a-long-folder-name"),
        ("OLDPWD", "/home/someone/a-long-folder-name"),
        ("DB_PASSWORD", "completed"),
        ("MYSQL_PWD", "load completed results/of today"),
    ],
)
def test_a_folder_a_short_value_or_words_in_a_variable_are_no_secret(name: str, value: str) -> None:
    assert collect_secrets({name: value}) == ()


@pytest.mark.parametrize("name", ["DB_PWD", "MYSQL_PWD", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"])
def test_a_long_value_of_a_secret_variable_is_a_secret(name: str) -> None:
    assert collect_secrets({name: "0123456789abcdef"}) == ("0123456789abcdef",)


def test_a_key_and_headers_given_outright_count_from_six_characters_on() -> None:
    given_outright = collect_secrets(
        {"OPENAI_API_KEY": "abc123"}, {"Authorization": "Bearer xyz789", "Api-Key": "k12345"}
    )
    assert KnownSecrets(given_outright).clean("abc123 xyz789 k12345") == "[redacted] [redacted] [redacted]"


def test_a_secret_is_never_taken_word_by_word() -> None:
    known = KnownSecrets(["some other folder"])
    assert known.clean("the other folder of some") == "the other folder of some"
    assert known.clean("in some other folder") == "in [redacted]"


@pytest.mark.parametrize("key", ["completed", "complete", "measured", "workers", "sample", "outcome", "output_text"])
def test_our_own_words_stay_where_a_key_is_spelled_like_one(tmp_path: Path, key: str) -> None:
    record = sample.ended(0, output_text=f"it said {key}!")
    record = record.model_copy(update={"output_sha256": hashlib.sha256(record.output_text.encode()).hexdigest()})
    encoded = encode(record, tmp_path, KnownSecrets([key]))
    kept = type(record).model_validate_json(encoded.line)
    assert (kept.outcome, kept.phase, kept.run_id) == (record.outcome, record.phase, record.run_id)
    assert kept.output_text == "it said [redacted]!"
    assert encoded.changed == "a secret was replaced"


def test_a_record_in_which_only_our_own_words_look_like_a_key_is_not_said_to_be_changed(tmp_path: Path) -> None:
    record = sample.ended(0)
    encoded = encode(record, tmp_path, KnownSecrets(["completed"]))
    assert encoded == encode(record, tmp_path)


def test_a_refused_prompt_names_the_variable_or_header_of_its_key_and_never_the_key(tmp_path: Path) -> None:
    for environment, headers, source in (
        ({"OPENAI_API_KEY": "code_01"}, {}, "the variable OPENAI_API_KEY"),
        ({}, {"Authorization": "Bearer code_01"}, "the header Authorization"),
    ):
        with pytest.raises(EvidenceError, match=source) as refused:
            sample.create(tmp_path, secrets=collect_secrets(environment, headers))
        assert "code_01" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("unit", ["a", "a+", "eyJ-", "?passw", "proxy=", "://", "bear "])
def test_a_long_text_without_secrets_stays_and_a_secret_at_its_end_is_found(unit: str) -> None:
    text = (unit * 200_000)[:200_000]
    assert redact_text(text) == text
    assert redact_text(f"{text} http://u:{KEY}@h") == f"{text} http://[redacted]@h"


def test_a_proxy_without_a_scheme_loses_its_password() -> None:
    assert redact_environment({"http_proxy": f"u:{KEY}@host:1"}) == {"http_proxy": "[redacted]@host:1"}
    assert redact_environment({"https_proxy": "host:1"}) == {"https_proxy": "host:1"}
    assert redact_argv(["env", f"http_proxy=u:{KEY}@host:1"]) == ("env", "http_proxy=[redacted]@host:1")
    assert redact_text(f"http_proxy='u:{KEY}@host' curl") == "http_proxy='[redacted]@host' curl"
    assert redact_json({"proxy": f"u:{KEY}@host"}) == {"proxy": "[redacted]@host"}
