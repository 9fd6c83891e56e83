"""Opening the prompt files a scenario draws from: ours, and its own ones beside them.

The only module of this room that opens files other than the scenario itself. Errors of prompt files become
ScenarioError here, with the prompt file's path and line, so that one class reaches the caller.
"""

from pathlib import Path

from prompts.filler import FILES, FOLDER
from prompts.load import (
    DOMAINS,
    WARMUP,
    Prompt,
    PromptError,
    file_sha256,
    load_file,
    load_stock,
    refuse_clashes,
    stock_path,
)
from scenarios.lengths import Counter
from scenarios.plan import Plan, Stock, expand
from scenarios.schema import Scenario, load_scenario
from scenarios.strict_toml import Problem, ScenarioError


def load_stock_for(scenario: Scenario, source: Path) -> Stock:
    """The prompts a scenario may draw from; own files are looked up from the folder of ``source``, the scenario file.

    Prompts of an own file join those of ours in the same domain, after them. ``sha256`` covers the files that can
    change the plan: those of our domains in the mix, the warm-up file where there is warm-up, and every own file.
    Raises ScenarioError for a file that is missing, wrong or of no use to the mix, and for a clash between files.
    """
    try:
        return _opened(scenario, source)
    except PromptError as error:
        problem = Problem(key=None, value=error.value, message=error.message)
        raise ScenarioError(error.path, problem, line=error.line) from error


def plan_from_file(
    path: Path,
    *,
    passes: int = 1,
    seed: int | None = None,
    count: Counter | None = None,
    limit_tokens: int | None = None,
    outline: bool = False,
) -> Plan:
    """The plan of a scenario file: load it, open its prompts, expand. Raises ScenarioError.

    ``seed`` stands in for the file's own: the paired launches of a study each have their order, the same in every arm.
    ``count`` is the server's tokenizer, which kind context and a trace of lengths need, and ``limit_tokens`` the
    server's context; what ``count`` raises passes through. ``outline``: for looking at, without a tokenizer.
    """
    scenario = load_scenario(path)
    if seed is not None:
        scenario = Scenario.model_validate({**scenario.model_dump(), "seed": seed})
    stock = load_stock_for(scenario, path)
    return expand(scenario, stock, passes=passes, source=path, count=count, limit_tokens=limit_tokens, outline=outline)


def _opened(scenario: Scenario, source: Path) -> Stock:
    ours = load_stock()
    by_domain = {domain: ours[domain] for domain in DOMAINS}
    files = [(stock_path(domain), ours[domain]) for domain in (*DOMAINS, WARMUP)]
    used = [domain for domain in DOMAINS if domain in scenario.mix.domains]
    used += [WARMUP] if scenario.warmup.requests else []
    sha256 = {f"prompts/{domain}.jsonl": file_sha256(stock_path(domain)) for domain in used}
    sha256 |= _material(scenario, source)
    for index, written in enumerate(scenario.mix.files):
        path = source.parent / written
        own = _own_prompts(scenario, source, index, path)
        if written in sha256:
            message = "another prompt file of this mix goes by the same name; rename one, or name it once"
            raise ScenarioError(source, Problem(key=f"mix.files[{index}]", value=written, message=message))
        sha256[written] = file_sha256(path)
        files.append((path, own))
        for prompt in own:
            by_domain[prompt.domain] = (*by_domain.get(prompt.domain, ()), prompt)
    refuse_clashes(files)
    return Stock(by_domain=by_domain, warmup=ours[WARMUP], sha256=sha256)


def _material(scenario: Scenario, source: Path) -> dict[str, str]:
    """Digests of what prompts are lengthened with, and of the trace: both can change the plan."""
    sha256 = {}
    trace = None if scenario.arrivals is None else scenario.arrivals.trace
    if scenario.context is not None or trace is not None:
        sha256 = {f"prompts/material/{name}": file_sha256(FOLDER / name) for name in FILES}
    if trace is not None and (source.parent / trace).is_file():
        sha256[trace] = file_sha256(source.parent / trace)
    return sha256


def _own_prompts(scenario: Scenario, source: Path, index: int, path: Path) -> tuple[Prompt, ...]:
    key, written = f"mix.files[{index}]", scenario.mix.files[index]
    if not path.is_file():
        message = f"there is no file {path}; name it as seen from the scenario file's folder"
        raise ScenarioError(source, Problem(key=key, value=written, message=message))
    own = load_file(path)
    domains = sorted({prompt.domain for prompt in own})
    if not set(domains) & set(scenario.mix.domains):
        message = f"holds prompts of {', '.join(domains)}, and mix.domains asks for none of these"
        message += f'; add {domains[0]} = "all" there, or take the file out'
        raise ScenarioError(source, Problem(key=key, value=written, message=message))
    return own
