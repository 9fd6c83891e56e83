"""Which level comes next in a search for the highest that holds: bisection over the candidates, lowest first."""


class Search:
    """Of ``n`` candidates, each visited once at most. It is taken that above a level that fails none holds."""

    def __init__(self, n: int) -> None:
        self.visited: list[int] = []
        self._n = n
        self._holds: int | None = None  # the highest that is known to hold; None: none yet
        self._fails: int | None = None  # the lowest that is known to fail; None: none yet

    @property
    def best(self) -> int | None:
        """The highest that holds; None where none does."""
        return self._holds

    def next(self) -> int | None:
        """The candidate to visit; None when the highest is known."""
        first = 0 if self._holds is None else self._holds + 1  # of those nothing is known of
        end = self._n if self._fails is None else self._fails
        return None if first >= end else (first + end - 1) // 2

    def judged(self, index: int, holds: bool) -> None:
        """What became of the candidate that ``next`` named."""
        self.visited.append(index)
        if holds:
            self._holds = index
        else:
            self._fails = index
