"""Closed loop: levels of so many users at once, or of so long a prompt; each user sends its next request when answered.

locust -f locustfiles/sweep.py --headless --host URL --scenario FILE (--arm NAME | --label TEXT) [--run-dir DIR]
"""

from locust import task

from locustfiles._levels_shape import LevelsShape
from locustfiles._user import EvidenceUser


class SweepUser(EvidenceUser):
    """Takes the level's next planned request, again and again; idle between levels."""

    kinds = ("concurrency", "context")

    def on_start(self) -> None:
        super().on_start()
        self.seat = self.session.crew.enlist()

    def on_stop(self) -> None:
        self.session.crew.leave(self.seat)
        super().on_stop()

    @task
    def replay(self) -> None:
        self.guarded(self._replay)

    def _replay(self) -> None:
        while True:
            with self.session.crew.taken(self.seat) as planned:
                self.send(planned)


class SweepShape(LevelsShape):
    """The levels of the scenario, one after the other."""
