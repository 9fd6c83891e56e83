"""The one level of a trace: requests at its times, with its prompts or with prompts made to its lengths.

A line with lengths gets the next prompt of the mix, lengthened as in kind context; where the line is too short for it,
a short request of our own stands in its place. Answers are asked for with ``max_tokens`` of the line's output length.
Mooncake's blocks: the text of a block comes from its id, so that requests with the same first ids begin alike, to the
token where the tokenizer does not join across blocks; each request's whole length is exact in any case.
"""

from pathlib import Path

from prompts.load import Prompt
from scenarios.drawn import Drawn, Levels, Wanted
from scenarios.lengths import Lengths, refuse_beyond
from scenarios.mixing import Dealer
from scenarios.planned import PlanLevel
from scenarios.planning import salt_of
from scenarios.strict_toml import Problem, ScenarioError
from scenarios.trace_file import BLOCK_TOKENS, Arrival, read_trace

LABEL = "trace"
SHORT_TASK = "Go on."  # where a line has too few tokens for a prompt of the mix
MOST_BYTES = 1 << 30  # of prompt text in one plan
_BYTES_A_TOKEN = 4


def trace_level(wanted: Wanted) -> Levels:
    """The level and its requests. Raises ScenarioError, of the trace with its line, or of the scenario."""
    asked = wanted.scenario.arrivals
    assert asked is not None
    assert asked.trace is not None
    if wanted.passes > 1:
        message = f"has its own times, and {wanted.passes} passes were asked; ask one pass"
        raise ScenarioError(wanted.source, Problem(key="arrivals.trace", value=asked.trace, message=message))
    path = (wanted.source.parent if wanted.source is not None else Path()) / asked.trace
    if not path.is_file():
        message = f"there is no file {path}; name it as seen from the scenario file's folder"
        raise ScenarioError(wanted.source, Problem(key="arrivals.trace", value=asked.trace, message=message))
    arrivals = read_trace(path, asked.requests)
    made = _Made(wanted, path, asked.trace)
    made.refuse_too_much(arrivals)
    prompts = list(Dealer(wanted.scenario, wanted.taken, apart=True).level(len(arrivals)))
    drawn = [made.request(arrival, prompt) for arrival, prompt in zip(arrivals, prompts, strict=True)]
    return [PlanLevel(index=0, label=LABEL)], drawn


class _Made:
    def __init__(self, wanted: Wanted, path: Path, name: str) -> None:
        self._wanted, self._path, self._name = wanted, path, name
        self._by_id = {prompt.id: prompt for prompts in wanted.taken.values() for prompt in prompts}
        self._lengths: Lengths | None = None

    def refuse_too_much(self, arrivals: tuple[Arrival, ...]) -> None:
        """A plan holds every prompt whole: what would not fit is said before any is made."""
        n_bytes = _BYTES_A_TOKEN * sum(arrival.input_tokens or 0 for arrival in arrivals)
        if n_bytes > MOST_BYTES:
            message = (
                f"asks for about {n_bytes / 1e9:.1f} GB of prompts in {len(arrivals)} lines; take a part of it with "
                "arrivals.requests"
            )
            raise ScenarioError(self._wanted.source, Problem(key="arrivals.trace", value=self._name, message=message))

    def request(self, arrival: Arrival, next_prompt: Prompt) -> Drawn:
        fields = {"scheduled_after_s": arrival.after_s}
        if arrival.output_tokens is not None:
            fields["max_tokens"] = arrival.output_tokens
        if arrival.input_tokens is None:
            return Drawn(prompt=self._named(arrival), level=LABEL, pass_index=0, fields=fields)
        max_tokens = arrival.output_tokens or 0
        at = Problem(key="input_length", value=arrival.input_tokens, message="")
        try:
            refuse_beyond(self._wanted.limit_tokens, arrival.input_tokens, max_tokens, source=self._path, at=at)
            more: dict[str, object] = {"target_prompt_tokens": arrival.input_tokens}
            if not self._wanted.outline:
                more |= self._lengthened(arrival, arrival.input_tokens, next_prompt, at)
        except ScenarioError as error:
            raise ScenarioError(self._path, *error.problems, line=arrival.line) from error
        return Drawn(prompt=next_prompt, level=LABEL, pass_index=0, fields={**fields, **more})

    def _named(self, arrival: Arrival) -> Prompt:
        found = self._by_id.get(arrival.prompt_id or "")
        if found is None:
            message = "is no prompt of this mix; correct the id, or widen mix.domains or mix.files"
            problem = Problem(key="prompt_id", value=arrival.prompt_id, message=message)
            raise ScenarioError(self._path, problem, line=arrival.line)
        return found

    def _lengthened(self, arrival: Arrival, target: int, prompt: Prompt, at: Problem) -> dict[str, object]:
        scenario = self._wanted.scenario
        if self._lengths is None:
            counter = self._wanted.counter("arrivals.trace", self._name)
            self._lengths = Lengths(scenario, counter, self._wanted.source)
        lengths, salt, ids = self._lengths, None, arrival.hash_ids or ()
        if arrival.hash_ids is None and self._wanted.cold:
            salt = salt_of(scenario, prompt.id, f"trace:{arrival.line}")
        n_whole = min(len(ids), (target - 1) // BLOCK_TOKENS)
        while True:  # the template and a question need room behind the blocks: the last one may have to go
            head = "".join(self._block(lengths, one, at) for one in ids[:n_whole])
            fits = lengths.bare(head + prompt.text, salt) <= target
            if fits or n_whole == 0 or lengths.bare(head + SHORT_TASK, salt) <= target:
                break
            n_whole -= 1
        seed = f"block:{ids[n_whole]}" if n_whole < len(ids) else f"trace:{arrival.line}"
        task = prompt if fits else prompt.model_copy(update={"text": SHORT_TASK, "check": None})
        text = lengths.prompt(task, target, seed=f"{scenario.seed}:{seed}", salt=salt, head=head, at=at)
        made: dict[str, object] = {"text": text, "salt": salt, "shared_prefix_tokens": BLOCK_TOKENS * n_whole}
        return made if fits else made | {"check": None}

    def _block(self, lengths: Lengths, hash_id: int, at: Problem) -> str:
        return lengths.shared(BLOCK_TOKENS, seed=f"{self._wanted.scenario.seed}:block:{hash_id}", at=at)
