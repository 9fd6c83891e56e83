"""Which level comes next in a search for the highest that holds: bisection over the candidates, lowest first."""


class Search:
    """Of ``n`` candidates, each visited once at most. It is taken that above a level that fails none holds."""

    def __init__(self, n: int) -> None:
        self.visited: list[int] = []
        self._holds = -1  # the highest that is known to hold; -1: none yet
        self._fails = n  # the lowest that is known to fail; n: none yet

    @property
    def best(self) -> int | None:
        """The highest that holds; None where none does."""
        return None if self._holds < 0 else self._holds

    def next(self) -> int | None:
        """The candidate to visit; None when the highest is known."""
        if self._fails - self._holds <= 1:
            return None
        return (self._holds + self._fails) // 2

    def judged(self, index: int, holds: bool) -> None:
        """What became of the candidate that ``next`` named."""
        self.visited.append(index)
        if holds:
            self._holds = index
        else:
            self._fails = index
