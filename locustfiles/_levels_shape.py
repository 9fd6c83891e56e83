"""The Locust shape of every load run: as many users as the level needs, changed between levels only."""

from locust import LoadTestShape

from locustfiles._user import session_of


class LevelsShape(LoadTestShape):
    """Asks the conductor, who begins with the first question; users that go are idle when they do."""

    abstract = True

    def tick(self) -> tuple[int, float] | None:
        assert self.runner is not None, "Locust gives a shape its runner"
        session = session_of(self.runner.environment)
        if session.conductor is None:
            return None
        if not session.conducting:
            environment = self.runner.environment
            session.begin(self.runner.quit if environment.web_ui is None else self.runner.stop)
        return session.conduct().users_wanted()
