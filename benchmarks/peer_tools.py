"""The load generators that ``benchmarks.peers`` runs: how each is asked for one load, and where its report says what.

The command lines are those of AIPerf 0.13.0, GuideLLM 0.8.1, genai-bench 0.0.5, vLLM 0.33.0 and SGLang 0.5.23.
"""

from typing import NamedTuple

SCENARIO = """name = "peers"
kind = "concurrency"
seed = 1
[mix]
domains = {{ code = 30, prose = 30, json = 30 }}
[request]
max_tokens = {{ code = {tokens}, prose = {tokens}, json = {tokens} }}
ignore_eos = true
[warmup]
requests = 1
[levels]
users = [{streams}]
requests = {requests}
[limits]
timeout_s = 60.0
"""


class Tool(NamedTuple):
    """A command line, and where its report has what; None where it reports no such thing."""

    command: str
    report: str = ""  # a pattern in its folder; "": one of our runs
    ttft: str = ""
    token: str = ""
    gap_p99: str | None = None
    rate: str = ""
    unit_ms: float = 1.0


_OURS = (
    "{program} -m locust -f locustfiles/sweep.py --headless --host {url} --scenario {folder}/peers.toml"
    " --label peers --calibration none --run-dir {folder}/runs --transport "
)
_RANDOM = (
    " --base-url {url} --model fake --tokenizer {tokenizer} --random-input-len 64 --random-output-len {tokens}"
    " --num-prompts {requests} --max-concurrency {streams} --disable-tqdm "
)
_SGLANG = "--backend sglang-oai-chat --dataset-name random-ids --random-range-ratio 1 --output-file {folder}/said.json"
_SERVING = ("said.json", "median_ttft_ms", "median_tpot_ms", "p99_itl_ms", "request_throughput")
_GUIDELLM = "benchmarks/0/metrics/{}/successful/{}"
TOOLS = {
    "wire": Tool(_OURS + "wire"),
    "openai": Tool(_OURS + "openai"),
    "sglang-rust": Tool("{program} -m sglang.benchmark.rust_client --worker-threads 1" + _RANDOM + _SGLANG, *_SERVING),
    "sglang": Tool("{program} -m sglang.benchmark.serving" + _RANDOM + _SGLANG, *_SERVING),
    "vllm": Tool(
        "{program} bench serve --backend openai-chat --endpoint /v1/chat/completions --dataset-name random"
        + _RANDOM
        + "--num-warmups 1 --save-result --result-dir {folder} --result-filename said.json",
        *_SERVING,
    ),
    "aiperf": Tool(
        "{program} profile --model fake --url {url} --endpoint-type chat --streaming --concurrency {streams}"
        " --request-count {requests} --warmup-request-count 1 --isl 64 --osl {tokens} --tokenizer {tokenizer}"
        " --ui none --artifact-dir {folder} --random-seed 1",
        "profile_export_aiperf.json",
        "time_to_first_token/p50",
        "inter_token_latency/p50",
        "inter_chunk_latency/p99",
        "request_throughput/avg",
    ),
    "guidellm": Tool(
        "{program} run --backend kind=openai_http,target={url},model=fake --profile kind=concurrent,streams={streams}"
        " --constraint kind=max_requests,count={requests} --tokenizer kind=hf_auto,model={tokenizer}"
        " --data kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}"
        " --output kind=json,path={folder}/said.json --disable-console",
        "said.json",
        _GUIDELLM.format("time_to_first_token_ms", "median"),
        _GUIDELLM.format("inter_token_latency_ms", "median"),
        None,  # its inter-token latency is a mean over each request
        _GUIDELLM.format("requests_per_second", "mean"),
    ),
    "genai-bench": Tool(
        "{program} benchmark --api-backend openai --api-base {url} --api-key none --api-model-name fake"
        " --model-tokenizer {tokenizer} --task text-to-text --traffic-scenario D(64,{tokens})"
        " --num-concurrency {streams} --max-requests-per-run {requests} --max-time-per-run 5"
        " --experiment-base-dir {folder} --experiment-folder-name said",
        "said/D*.json",
        "aggregated_metrics/stats/ttft/p50",
        "aggregated_metrics/stats/tpot/p50",
        None,
        "aggregated_metrics/requests_per_second",
        1e3,
    ),
}
