"""A prompt lengthened to an exact number of tokens, counted by whoever will read it.

The text is: a head (what stands first, a shared text for example), whole pieces of ``prompts/filler.py``, one closing
piece cut to measure word by word, and the task itself, whose question stays at the end. The counter may be slow and far
away, so it is asked seldom: how many pieces fit is guessed from characters a token and mended from each answer, and the
same is done with the words of the closing piece. The last tokens are short common words, mostly one token each.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from prompts.filler import pieces, sentences

Measure = Callable[[str], int]  # prompt tokens of the whole request whose text this is

SMALL_WORDS = ("so", "it", "is", "as", "we", "on", "to", "and", "in", "of", "at", "by", "the", "for", "no", "up", "a")
_MOST_ROUNDS = 40
_COINS = ("a", "so", "and", "with", "where", "harbour")  # of several lengths, for tokenizers that count those
_PIECES_BACK, _WORDS_BACK = 2, 3  # given up where the last tokens do not come out, before it is given up altogether
_CLOSING = {"code": ("# Note: ", "\n\n"), "json": ('{"note": "', '"}\n\n')}
_PROSE_CLOSING = ("", "\n\n")


class LengthError(Exception):
    """A length that cannot be met exactly. ``target`` was wanted, ``reached`` is the nearest below it (or the least
    there is); the message ends with what to do."""

    def __init__(self, target: int, reached: int, why: str, remedy: str) -> None:
        super().__init__(f"{target} tokens: {why} ({reached} reached); {remedy}")
        self.target, self.reached = target, reached


@dataclass(slots=True)
class _Guess:
    """How many characters, or words, make a token: started from a usual value, mended by what was counted."""

    per_token: float

    def mend(self, amount: int, tokens: int) -> None:
        if amount > 0 and tokens > 0:
            self.per_token = amount / tokens


@dataclass(slots=True)
class Lengthener:
    """Lengthens prompts of one server. It remembers what a token takes in each domain from one prompt to the next."""

    _characters: dict[str, _Guess] = field(default_factory=dict)
    _words: dict[str, _Guess] = field(default_factory=dict)

    def lengthened(self, task: str, domain: str, target: int, measure: Measure, *, seed: str, head: str = "") -> str:
        """The text for which ``measure`` gives exactly ``target``. The same arguments give the same text.

        Raises LengthError where head and task alone are longer, or no combination of words comes out exactly.
        """
        # What was learned decides how often the counter is asked, not what comes out: the most pieces that fit, then
        # the most words, then small words.
        bare = measure(head + task)
        if bare > target:
            remedy = f"write {bare} or more, or take a shorter prompt"
            raise LengthError(target, bare, "the prompt alone is longer", remedy)
        if bare == target:
            return head + task
        draft = _Draft(head=head, task=task, domain=domain, seed=seed, measure=measure, bare=bare)
        characters = self._characters.setdefault(domain, _Guess(4.0 if domain not in _CLOSING else 3.2))
        words = self._words.setdefault(domain, _Guess(0.75))
        n_pieces = draft.most_pieces(target, characters)
        for back in range(min(_PIECES_BACK, n_pieces) + 1):
            found = draft.closed(target, n_pieces - back, words)
            if found is not None:
                return found
        found = draft.closed(target, 0, words, plain=True) if n_pieces == 0 else None
        if found is not None:
            return found
        why = "no choice of words comes out exactly with this tokenizer"
        raise LengthError(target, draft.best, why, "write another number of tokens, for example one more")


@dataclass(slots=True)
class _Draft:
    """The text under way. A length is asked of the counter once."""

    head: str
    task: str
    domain: str
    seed: str
    measure: Measure
    bare: int
    best: int = 0
    _pieces: list[str] = field(default_factory=list)
    _source: Iterator[str] | None = None
    _counted: dict[str, int] = field(default_factory=dict)

    def most_pieces(self, target: int, guess: _Guess) -> int:
        """The most whole pieces that do not pass the target."""
        low, low_count, high = 0, self.bare, None
        for _ in range(_MOST_ROUNDS):
            if high is not None and high - low <= 1:
                break
            at = max(low + 1, self._pieces_within(self._n_characters(low) + (target - low_count) * guess.per_token))
            at = at if high is None else min(at, high - 1)
            count = self.count(self.body(at))
            guess.mend(self._n_characters(at), count - self.bare)
            if count <= target:
                low, low_count = at, count
            else:
                high = at
        return low

    def closed(self, target: int, n_pieces: int, guess: _Guess, *, plain: bool = False) -> str | None:
        """With ``n_pieces`` and a closing piece that ends at exactly the target; None: no choice of words does."""
        before = self.body(n_pieces)
        bare = self.count(before)
        if bare == target:
            return self.text(before)
        prose = list(islice(_words(f"{self.seed}:closing"), 4 * (target - bare) + 8))

        def with_words(n: int, small: Sequence[str] = ()) -> str:
            chosen = " ".join((*prose[:n], *small))
            if plain:
                return f"{before}{chosen} "
            opening, ending = _CLOSING.get(self.domain, _PROSE_CLOSING)
            return f"{before}{opening}{chosen}{ending}"

        n_words = self._most_words(target, guess, with_words, len(prose))
        if n_words is None:
            return None
        for back in range(min(_WORDS_BACK, n_words) + 1):
            text = self._filled(target, n_words - back, with_words)
            if text is not None:
                return text
        return None

    def _most_words(self, target: int, guess: _Guess, with_words: Callable[[int], str], n_there: int) -> int | None:
        """The most words that do not pass the target; None where even the frame around them does."""
        low, low_count, high = 0, self.count(with_words(0)), n_there
        if low_count > target:
            return None
        empty = low_count
        for _ in range(_MOST_ROUNDS):
            if low_count == target or high - low <= 1:
                break
            at = min(max(low + int((target - low_count) * guess.per_token), low + 1), high - 1)
            count = self.count(with_words(at))
            if count <= target:
                low, low_count = at, count
            else:
                high = at
            guess.mend(at, count - empty)
        return low

    def _filled(self, target: int, n_words: int, with_words: Callable[[int, Sequence[str]], str]) -> str | None:
        """The words and as many small ones as the target takes; None: none of the choices tried comes out.

        At first every small word is taken for one token; where it is not, the costs of a few are looked up.
        """
        bare, start = self.count(with_words(n_words, ())), n_words % len(SMALL_WORDS)
        gap = target - bare
        turned = SMALL_WORDS[start:] + SMALL_WORDS[:start]
        found = self._exact(target, with_words(n_words, [turned[at % len(turned)] for at in range(gap)]))
        if found is not None or gap == 0:
            return found
        costs = {word: self.count(with_words(n_words, (word,))) - bare for word in _COINS}
        paid = _fewest(gap, costs)
        return None if paid is None else self._exact(target, with_words(n_words, paid))

    def _exact(self, target: int, before: str) -> str | None:
        count = self.count(before)
        if count < target:
            self.best = max(self.best, count)
        return self.text(before) if count == target else None

    def body(self, n_pieces: int) -> str:
        self._pieces_to(n_pieces)
        return self.head + "".join(self._pieces[:n_pieces])

    def text(self, before: str) -> str:
        return before + self.task

    def count(self, before: str) -> int:
        if before not in self._counted:
            self._counted[before] = self.measure(self.text(before))
        return self._counted[before]

    def _pieces_within(self, n_characters: float) -> int:
        n, total = 0, 0
        while True:
            self._pieces_to(n + 1)
            total += len(self._pieces[n])
            if total > n_characters:
                return n
            n += 1

    def _n_characters(self, n_pieces: int) -> int:
        return sum(map(len, self._pieces[:n_pieces]))

    def _pieces_to(self, n: int) -> None:
        if self._source is None:
            self._source = pieces(self.domain, self.seed)
        while len(self._pieces) < n:
            self._pieces.append(next(self._source))


def _fewest(amount: int, costs: dict[str, int]) -> list[str] | None:
    """The fewest words whose costs add up to the amount; None: there are none."""
    best: dict[int, list[str]] = {0: []}
    for sum_so_far in range(1, amount + 1):
        ways = [
            best[sum_so_far - cost] + [word] for word, cost in costs.items() if cost > 0 and sum_so_far - cost in best
        ]
        if ways:
            best[sum_so_far] = min(ways, key=len)
    return best.get(amount)


def _words(seed: str) -> Iterator[str]:
    for sentence in sentences(seed):
        yield from sentence.split(" ")
