"""What a server is follows from what it said, and a doubt stays a doubt."""

import json

from infra.engines.identify import Answer, identify, request_extras

LLAMACPP_METRICS = "# TYPE llamacpp:tokens_predicted_total counter\nllamacpp:tokens_predicted_total 0\n"


def answer(body, status=200, **headers):
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Answer(status=status, headers={k.replace("_", "-"): v for k, v in headers.items()}, body=raw)


def models(owner, *ids):
    return answer({"object": "list", "data": [{"id": i, "object": "model", "owned_by": owner} for i in ids]})


def llamacpp(**changes):
    off = (
        '{"error":{"code":501,"message":"This server does not support metrics endpoint.","type":"not_supported_error"}}'
    )
    answers = {
        "models": models("llamacpp", "tiny.gguf"),
        "props": answer({"build_info": "b11434-ab12cd3", "total_slots": 1}),
        "slots": answer([{"id": 0, "speculative": True, "params": {"speculative.types": "draft-simple"}}]),
        "metrics": answer(LLAMACPP_METRICS, Content_Type="text/plain; version=0.0.4"),
        "off": answer(off, 501, Server="llama.cpp"),
    }
    return {k: v for k, v in (answers | changes).items() if v is not None}


def test_llamacpp_is_known_with_its_version_model_and_speculation():
    facts = identify(llamacpp())
    assert (facts.engine, facts.version, facts.adapter) == ("llama.cpp", "b11434-ab12cd3", "llama.cpp")
    assert facts.models == ("tiny.gguf",)
    assert (facts.speculative, facts.speculative_mode) == (True, "draft-simple")
    assert facts.metric_types == {"llamacpp:tokens_predicted_total": "counter"}


def test_the_server_header_alone_names_llamacpp():
    facts = identify({"health": answer({"status": "ok"}, Server="llama.cpp")})
    assert facts.engine == "llama.cpp"
    assert facts.adapter is None


def test_metrics_switched_off_is_a_lack_with_its_status():
    facts = identify(llamacpp(metrics=answer("{}", 501, Server="llama.cpp")))
    assert facts.engine == "llama.cpp"
    assert facts.adapter is None
    assert any("HTTP 501" in lack for lack in facts.lacks)


def test_garbled_metrics_are_a_lack_that_names_the_line():
    facts = identify(llamacpp(metrics=answer("llamacpp:x 1\nnonsense\n")))
    assert any("line 2" in lack for lack in facts.lacks)


def test_a_server_that_does_not_speculate_says_false_not_unknown():
    facts = identify(llamacpp(slots=answer([{"id": 0, "speculative": False}])))
    assert facts.speculative is False


def test_without_slots_speculation_is_not_known_though_the_counters_are_there():
    facts = identify(llamacpp(slots=answer({"error": {"code": 501}}, 501)))
    assert facts.speculative is None
    assert "HTTP 501" in facts.why_speculative


def test_slots_that_differ_are_not_known():
    assert identify(llamacpp(slots=answer([{"speculative": True}, {"speculative": False}]))).speculative is None


def test_a_build_called_unknown_is_no_version():
    facts = identify(llamacpp(props=answer({"build_info": "b0-unknown"})))
    assert facts.version is None
    assert "b0-unknown" in (facts.why_version or "")


def test_vllm_without_speculation_series_does_not_speculate():
    body = '# TYPE vllm:generation_tokens_total counter\nvllm:generation_tokens_total{engine="0"} 0\n'
    answers = {"models": models("vllm", "m"), "version": answer({"version": "0.33.0"}), "metrics": answer(body)}
    facts = identify(answers)
    assert (facts.engine, facts.version, facts.speculative) == ("vllm", "0.33.0", False)
    assert facts.adapter == "vllm"


def test_sglang_says_its_algorithm():
    info = {"version": "0.5.23", "speculative_algorithm": "NGRAM"}
    facts = identify({"models": models("sglang", "m"), "server_info": answer(info)})
    assert (facts.engine, facts.version) == ("sglang", "0.5.23")
    assert (facts.speculative, facts.speculative_mode) == (True, "NGRAM")
    off = identify({"models": models("sglang", "m"), "server_info": answer(info | {"speculative_algorithm": None})})
    assert off.speculative is False


def test_witnesses_that_disagree_make_the_engine_unknown():
    facts = identify(llamacpp(models=models("vllm", "m")))
    assert facts.engine == "unknown"
    assert "disagree" in facts.why_engine


def test_a_stranger_is_unknown_and_not_guessed():
    facts = identify({"models": models("acme", "m1", "m2")})
    assert (facts.engine, facts.models, facts.speculative) == ("unknown", ("m1", "m2"), None)


def test_nothing_answering_is_unknown_and_every_lack_is_said():
    refused = Answer(status=None, headers={}, body=None, error="connection refused")
    facts = identify({"models": refused, "metrics": refused})
    assert facts.engine == "unknown"
    assert any("connection refused" in lack for lack in facts.lacks)


def test_bodies_of_another_shape_are_no_evidence():
    odd = {"models": answer([1, 2]), "slots": answer({"a": 1}), "props": answer("<html>"), "version": answer("null")}
    assert identify(odd).engine == "unknown"
    assert identify(odd).models == ()
    slots = answer([{"speculative": "yes"}])
    assert identify(llamacpp(slots=slots)).speculative is None


def test_each_engine_is_asked_for_the_evidence_it_has():
    usage = {"stream_options": {"include_usage": True}}
    counted = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    assert request_extras("llama.cpp", cold_per_request=False) == usage | {"timings_per_token": True}
    assert request_extras("llama.cpp", cold_per_request=True)["cache_prompt"] is False
    assert request_extras("vllm", cold_per_request=False) == counted
    assert request_extras("sglang", cold_per_request=False) == counted
    assert request_extras("unknown", cold_per_request=True) == usage


def test_bodies_nested_without_end_and_numbers_that_are_none_are_answers_that_cannot_be_read():
    deep = '{"build_info": ' + "[" * 50_000 + "]" * 50_000 + "}"
    facts = identify(llamacpp(props=answer(deep), slots=answer(deep)), host="http://h")
    assert (facts.engine, facts.speculative) == ("llama.cpp", None)
    for odd in ("NaN", "Infinity", "1e999"):
        assert answer(f'{{"data": [{{"id": "m", "owned_by": {odd}}}]}}').json() is None


def test_a_list_where_a_slot_names_its_speculation_is_no_mode():
    slots = answer([{"speculative": True, "params": {"speculative.types": ["draft-simple"]}}, 7])
    facts = identify(llamacpp(slots=slots), host="http://h")
    assert (facts.speculative, facts.speculative_mode) == (True, None)
