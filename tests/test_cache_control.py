"""Making a server forget: the reply is believed by its body, and cold is proven by the requests that follow."""

import json
from typing import Any

import pytest

from infra.cache_control import ResetReply, judge_reply, learns_over_requests, prove_cold, reset, reset_plan
from infra.launching.ports import free_port
from tests.played_engine import playing

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
TEXT, JSON = "text/plain; charset=utf-8", "application/json"


def asked(engine: str, replies: list[list[Any]], path: str, **more: Any) -> tuple[ResetReply, list[str]]:
    with playing({path: replies}) as server:
        reply = reset(engine, server.url, "cold", timeout_s=5.0, **{"busy_within_s": 0.0, **more})
        return reply, server.asked


def test_sglang_is_flushed_when_status_and_text_say_so() -> None:
    reply, paths = asked("sglang", [[200, TEXT, FLUSHED]], "/flush_cache")
    assert (reply.state, reply.asked, reply.http_status, reply.n_tries) == ("reset", "POST /flush_cache", 200, 1)
    assert paths == ["POST /flush_cache"]
    assert reply.body == FLUSHED
    assert json.loads(json.dumps(reply.record()))["state"] == "reset"


def test_a_busy_sglang_refuses_with_400_although_its_text_says_flushed() -> None:
    reply, _ = asked("sglang", [[400, TEXT, FLUSHED]], "/flush_cache")
    assert reply.state == "refused"
    assert reply.why.endswith("; drain first")


def test_a_busy_server_is_asked_again_within_its_bound() -> None:
    reply, paths = asked(
        "sglang", [[400, TEXT, "Flush cache failed.\n"], [200, TEXT, FLUSHED]], "/flush_cache", busy_within_s=5.0
    )
    assert (reply.state, reply.n_tries, len(paths)) == ("reset", 2, 2)


def test_a_200_with_another_text_is_no_flush() -> None:
    reply, _ = asked("sglang", [[200, "text/html", "<html>welcome</html>"]], "/flush_cache")
    assert (reply.state, reply.http_status) == ("refused", 200)
    assert "welcome" in reply.why


def test_vllm_says_success_true() -> None:
    reply, _ = asked("vllm", [[200, JSON, '{"success":true}']], "/reset_prefix_cache")
    assert reply.state == "reset"


def test_vllms_200_with_success_false_is_a_refusal() -> None:
    reply, _ = asked("vllm", [[200, JSON, '{"success":false}']], "/reset_prefix_cache")
    assert (reply.state, reply.http_status) == ("refused", 200)
    assert "blocks are still held" in reply.why


def test_vllm_that_frees_its_blocks_a_moment_later_is_reset() -> None:
    replies = [[200, JSON, '{"success":false}'], [200, JSON, '{"success":true}']]
    reply, _ = asked("vllm", replies, "/reset_prefix_cache", busy_within_s=5.0)
    assert (reply.state, reply.n_tries) == ("reset", 2)


def test_a_vllm_that_answers_200_with_nothing_has_not_said_that_it_was_done() -> None:
    for body in ("", "null", "[]", '{"success":"yes"}'):
        reply, _ = asked("vllm", [[200, JSON, body]], "/reset_prefix_cache")
        assert reply.state == "unsaid"


def test_vllm_without_its_development_mode_says_which_switch_is_missing() -> None:
    reply, _ = asked("vllm", [], "/elsewhere")
    assert (reply.state, reply.http_status) == ("no endpoint", 404)
    assert "VLLM_SERVER_DEV_MODE=1" in reply.why


def test_a_key_that_is_wanted_is_named() -> None:
    assert "key" in judge_reply("sglang", 401, "")[1]


def test_external_tiers_are_reset_too_where_the_server_has_them() -> None:
    plan = reset_plan("vllm", {"kv_transfer_config.kv_connector": "LMCacheConnector"})
    assert plan.path == "/reset_prefix_cache?reset_external=true"
    assert reset_plan("vllm", {"kv_transfer_config": None}).path == "/reset_prefix_cache"


def test_a_storage_tier_that_the_flush_leaves_is_no_reset() -> None:
    reply, _ = asked("sglang", [[200, TEXT, FLUSHED]], "/flush_cache", settings={"hicache_storage_backend": "file"})
    assert reply.state == "unsaid"
    assert "/hicache/storage-backend/clear" in reply.why


def test_llamacpp_has_no_reset_and_each_request_stays_cold_by_itself() -> None:
    for engine in ("llama.cpp", "llama.cpp embedded"):
        reply = reset(engine, "http://127.0.0.1:9", "cold", mode="draft-simple")  # nothing is called
        assert (reply.state, reply.asked) == ("per request", None)
        assert '{"cache_prompt": false}' in reply.why


@pytest.mark.parametrize(
    ("engine", "mode"),
    [
        ("llama.cpp", "ngram-mod"),
        ("llama.cpp", "ngram_mod"),
        ("llama.cpp", "draft-simple,ngram-mod"),
        ("vllm", "suffix"),
    ],
)
def test_tables_that_no_call_clears_need_a_restart(engine: str, mode: str) -> None:
    reply = reset(engine, "http://127.0.0.1:9", "cold", mode=mode)
    assert reply.state == "needs restart"
    assert prove_cold(reply, [0], idle=True).state == "needs restart"
    assert prove_cold(reply, [0], idle=True, restarted=True).state == "proven"


def test_a_suffix_tree_that_keeps_nothing_needs_none() -> None:
    settings = {"speculative_config.suffix_decoding_max_cached_requests": 0}
    assert reset_plan("vllm", settings, "suffix").needs_restart is None


def test_sglangs_trie_learns_and_its_flush_clears_it() -> None:
    assert "trie" in (learns_over_requests("sglang", "NGRAM") or "")
    assert reset_plan("sglang", {}, "NGRAM").needs_restart is None
    assert learns_over_requests("sglang", "STANDALONE") is None
    assert learns_over_requests("vllm", "ngram") is None  # it looks into the request's own tokens


def test_warm_and_as_is_call_nothing() -> None:
    with playing({}) as server:
        for policy in ("warm", "as-is"):
            assert reset("sglang", server.url, policy).state == "not asked"
        assert server.asked == []


def test_an_engine_that_is_not_known_needs_a_restart() -> None:
    assert reset("other", "http://127.0.0.1:9", "cold").state == "needs restart"


def test_a_server_that_is_gone_is_unreachable() -> None:
    reply = reset("sglang", f"http://127.0.0.1:{free_port()}", "cold", timeout_s=1.0)
    assert (reply.state, reply.http_status, reply.body) == ("unreachable", None, None)
    assert prove_cold(reply, [0], idle=True).state == "not proven"


RESET = ResetReply(
    engine="sglang", policy="cold", asked="POST /flush_cache", state="reset", why="HTTP 200: Cache flushed."
)


def test_cold_is_proven_by_reply_rest_and_zero_cached_tokens_together() -> None:
    found = prove_cold(RESET, [0, 0], idle=True)
    assert (found.state, found.why) == (
        "proven",
        "HTTP 200: Cache flushed.; idle; 2 first requests with 0 cached tokens",
    )


@pytest.mark.parametrize(
    ("cached", "idle", "said"),
    [
        ([0, 7], True, "1 of 2 first requests took up to 7 prompt tokens from a cache"),
        (
            [0, None],
            True,
            "1 of 2 requests do not say their cached tokens: start the server with --enable-cache-report",
        ),
        ([], True, "no request says"),
        ([0], False, "the server was at work"),
        ([0], None, "the server was not looked at"),
    ],
)
def test_anything_less_is_not_proven(cached: list[int | None], idle: bool | None, said: str) -> None:
    found = prove_cold(RESET, cached, idle=idle)
    assert found.state == "not proven"
    assert said in found.why


def test_zero_cached_tokens_after_a_refused_reset_prove_nothing() -> None:
    refused = ResetReply(
        engine="vllm", policy="cold", asked="POST /reset_prefix_cache", state="refused", why="success false"
    )
    assert prove_cold(refused, [0, 0], idle=True).state == "not proven"
