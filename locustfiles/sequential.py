"""The plan replayed one request at a time, as one user at a keyboard would: no overlap, no wait.

locust -f locustfiles/sequential.py --headless --host URL --scenario FILE (--arm NAME | --label TEXT) [--run-dir DIR]
"""

from locust import task

from locustfiles._session import Session
from locustfiles._user import EvidenceUser


class SequentialUser(EvidenceUser):
    """One user, whatever the number asked for: more would not be sequential."""

    fixed_count = 1
    kinds = ("sequential",)

    @task
    def replay(self) -> None:
        self.guarded(self._replay)

    def _replay(self) -> None:
        assert isinstance(self.session, Session), "a sequential replay is one process's"
        self.session.begin(self.environment.runner.quit)
        plan = self.session.plan
        for planned in plan.warmup:
            self.send(planned)
        with self.session.window():
            for planned in plan.measured:
                self.send(planned)
