"""Open loop: requests arrive at their own instants, at a constant rate, as a Poisson process or as in a trace.

locust -f locustfiles/arrivals.py --headless --host URL --scenario FILE (--arm NAME | --label TEXT) [--run-dir DIR]
"""

from locust import task

from locustfiles._dispatch import Dispatcher
from locustfiles._levels_shape import LevelsShape
from locustfiles._user import EvidenceUser


class ArrivalsUser(EvidenceUser):
    """One user a process: it sends the warm-up itself and dispatches the rest."""

    kinds = ("arrivals",)

    def on_start(self) -> None:
        super().on_start()
        self.dispatcher = Dispatcher(self.session.crew, self.session.transport, self.send, self.fault)
        self.seat = self.session.crew.enlist()

    def on_stop(self) -> None:
        self.dispatcher.stop()
        self.session.crew.leave(self.seat)
        super().on_stop()

    @task
    def replay(self) -> None:
        self.guarded(self._replay)

    def _replay(self) -> None:
        crew = self.session.crew
        while True:
            if crew.awaited().kind == "arrivals":
                self.dispatcher.run_level()
            else:
                with crew.taken(self.seat) as planned:
                    self.send(planned)


class ArrivalsShape(LevelsShape):
    """One dispatcher a process for the whole of the run."""
