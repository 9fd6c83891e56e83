"""What stands before an engine is named, with what it does to a measurement and where the engine's evidence is."""

import json

import pytest
from test_identify import answer, llamacpp, models

from infra.engines.identify import identify

VLLM = '# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine="0"} 0\n'
STACK = '# TYPE vllm:current_qps gauge\nvllm:current_qps{server="http://a:8000"} 1\n'
GATEWAY = "# TYPE smg_http_requests_total counter\nsmg_http_requests_total 3\n"
OLD_ROUTER = "# TYPE sgl_router_requests_total counter\nsgl_router_requests_total 3\n"
LITELLM = "# TYPE litellm_proxy_total_requests_metric counter\nlitellm_proxy_total_requests_metric_total 3\n"


@pytest.mark.parametrize(
    ("body", "name", "kind"),
    [
        (STACK, "vLLM production stack", "router"),
        (GATEWAY, "SGLang's model gateway", "router"),
        (OLD_ROUTER, "SGLang's router", "router"),
        (LITELLM, "LiteLLM", "gateway"),
    ],
)
def test_a_router_is_known_by_its_series_and_points_to_its_workers(body, name, kind):
    facts = identify({"models": models("acme", "m"), "metrics": answer(body)})
    assert facts.front is not None
    assert name in facts.front.name
    assert facts.front.kind == kind
    assert "--metrics-url" in facts.front.remedy
    assert (facts.engine, facts.adapter) == ("unknown", None)


def test_a_routers_gauges_that_borrow_vllms_prefix_make_it_no_vllm():
    body = STACK + '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{server="http://a:8000"} 1\n'
    facts = identify({"models": models("vllm", "m"), "metrics": answer(body)})
    assert facts.adapter is None
    assert facts.front is not None


def test_an_engine_itself_is_no_front():
    facts = identify({"models": models("vllm", "m"), "metrics": answer(VLLM, Server="uvicorn")})
    assert (facts.front, facts.adapter) == (None, "vllm")
    own = llamacpp(models=answer({"data": [{"id": "m", "owned_by": "llamacpp"}]}, Server="llama.cpp"))
    assert identify(own).front is None


def test_turbollm_is_a_front_that_takes_thinking_out():
    facts = identify({"models": models("turbollm", "m")})
    assert facts.front is not None
    assert facts.front.kind == "thinking stripper"
    assert "thinking" in facts.front.does


def test_litellm_is_known_by_its_header_before_an_engine_it_hides():
    facts = identify({"models": answer({"data": [{"id": "m", "owned_by": "openai"}]}, x_litellm_version="1.88.0")})
    assert facts.front is not None
    assert (facts.front.name, "1.88.0" in facts.front.seen) == ("LiteLLM", True)


def test_a_llamacpp_that_does_not_name_itself_stands_behind_something():
    behind = llamacpp(models=answer({"data": [{"id": "m", "owned_by": "llamacpp"}]}, Server="nginx/1.25"), off=None)
    facts = identify(behind)
    assert facts.front is not None
    assert "nginx" in facts.front.seen


def test_a_hosted_api_is_named_by_its_owner_and_its_public_address():
    answers = {"models": models("openai", "a", "b"), "metrics": answer({"error": {}}, 404)}
    facts = identify(answers, host="https://api.example.com")
    assert facts.front is not None
    assert facts.front.kind == "hosted API"
    assert identify(answers, host="http://127.0.0.1:8000").front is None
    assert identify(answers, host="http://10.0.0.5:8000").front is None


def test_a_worker_list_alone_makes_a_router():
    facts = identify({"models": models("acme", "m"), "workers": answer({"workers": [{"url": "http://a"}]})})
    assert facts.front is not None
    assert "1 workers" in facts.front.seen


def test_tensorrt_llm_is_found_at_its_own_address_and_the_option_is_named():
    series = "# TYPE trtllm_generation_tokens_total counter\ntrtllm_generation_tokens_total 3\n"
    fifo = answer([{"iter": 1}], Content_Type="application/json")
    answers = {
        "models": models("tensorrt_llm", "m"), "version": answer({"version": "1.2.0"}), "metrics": fifo,
        "trtllm_metrics": answer(series),
    }  # fmt: skip
    facts = identify(answers)
    assert (facts.engine, facts.version, facts.adapter) == ("tensorrt-llm", "1.2.0", None)
    assert facts.metrics_at == "/prometheus/metrics"
    assert any("--metrics-url URL/prometheus/metrics" in lack for lack in facts.lacks)
    assert identify(answers | {"metrics": answer(series)}).adapter == "tensorrt-llm"


def test_rays_exports_are_named_and_not_read():
    body = "# TYPE ray_vllm_generation_tokens_total counter\nray_vllm_generation_tokens_total 3\n"
    facts = identify({"models": models("vllm", "m"), "metrics": answer(body)})
    assert facts.adapter is None
    assert any("Ray exports vLLM" in lack for lack in facts.lacks)


SERVER_INFO = {"version": "0.5.17", "speculative_algorithm": "NGRAM", "enable_cache_report": False}


@pytest.mark.parametrize(
    ("answers", "supplies"),
    [
        (llamacpp(metrics=answer("{}", 501)), ["--metrics"]),
        (llamacpp(slots=answer("{}", 501)), ["--slots"]),
        ({"models": models("sglang", "m"), "server_info": answer(SERVER_INFO), "metrics": answer("", 404)},
         ["--enable-metrics", "--enable-cache-report", "0.5.19"]),
        ({"models": models("vllm", "m"), "version": answer({"version": "0.33.0"}), "metrics": answer("", 404)},
         ["--disable-log-stats", "--enable-prompt-tokens-details", "--per-request-spec-decode-metrics",
          "VLLM_SERVER_DEV_MODE"]),
        ({"models": models("acme", "m")}, ["continuous_usage_stats"]),
    ],
)  # fmt: skip
def test_each_lack_names_the_flag_or_field_that_would_supply_it(answers, supplies):
    facts = identify(answers)
    said = " ".join(str(lack.supply) for lack in facts.missing)
    for flag in supplies:
        assert flag in said
    assert facts.lacks == tuple(str(lack) for lack in facts.missing)


@pytest.mark.parametrize(
    ("metrics", "supply"),
    [
        (answer("<html>", Content_Type="text/html"), "--metrics-url"),
        (answer("", 401), "key"),
        (answer("", 404), "--enable-metrics"),
    ],
)
def test_metrics_that_are_something_else_are_supplied_by_an_address_or_a_key(metrics, supply):
    facts = identify({"models": models("sglang", "m"), "server_info": answer(SERVER_INFO), "metrics": metrics})
    (lack,) = [one for one in facts.missing if one.what.startswith("metrics")]
    assert supply in str(lack.supply)


def test_an_old_address_of_sglangs_configuration_is_read_too():
    facts = identify({"models": models("sglang", "m"), "server_info_old": answer(SERVER_INFO)})
    assert (facts.version, facts.speculative, facts.speculative_mode) == ("0.5.17", True, "NGRAM")
    json.dumps(facts.lacks)
