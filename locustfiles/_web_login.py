"""The login of the web UI: one user, whose name and password come from the environment of the process.

``--web-login`` with LOCUST_WEB_PASSWORD set (and LOCUST_WEB_USER, "locust" where it is not) asks for both before any
page. The password reaches no file, and a wrong one is answered after a second.
"""

import hmac
import os
import secrets
from typing import Any
from urllib.parse import urlsplit

import flask
import gevent
from flask_login import UserMixin, current_user, login_user
from gevent.lock import BoundedSemaphore

from locustfiles._options import UsageError

USER, PASSWORD = "LOCUST_WEB_USER", "LOCUST_WEB_PASSWORD"
DELAY_S = 1.0
PATH = "/evidence-login"


def offer_login(ui: Any) -> None:
    """Puts the login before every page of ``ui``. Raises UsageError where no password was given."""
    name, password = os.environ.get(USER) or "locust", os.environ.get(PASSWORD)
    if not password:
        raise UsageError(f"--web-login: set {PASSWORD} in the environment (and {USER}, else the user is 'locust')")

    class OneUser(UserMixin):  # type: ignore[misc]  # the library has no types
        def get_id(self) -> str:
            return name

    ui.app.secret_key = secrets.token_bytes(32)  # of this process: a restart asks again
    ui.app.config.update(SESSION_COOKIE_HTTPONLY=True, SESSION_COOKIE_SAMESITE="Strict")
    ui.login_manager.user_loader(lambda found: OneUser() if found == name else None)
    ui.auth_args = {"username_password_callback": PATH}

    one_at_a_time = BoundedSemaphore(1)  # guesses made side by side would each wait their second at once

    def log_in() -> flask.Response:
        typed = (flask.request.form.get("username", ""), flask.request.form.get("password", ""))
        told = zip(typed, (name, password), strict=True)
        matches = [hmac.compare_digest(one.encode(), other.encode()) for one, other in told]
        if all(matches):
            login_user(OneUser())
            return _to("locust.index")
        with one_at_a_time:
            gevent.sleep(DELAY_S)
        flask.session["auth_error"] = "unknown user or wrong password"
        return _to("locust.login")

    ui.app.add_url_rule(PATH, "evidence_login", log_in, methods=["POST"])


def logged_in() -> bool:
    """Of the request at hand."""
    return bool(current_user.is_authenticated)


def _to(endpoint: str) -> flask.Response:
    answer = flask.redirect(urlsplit(flask.url_for(endpoint)).path)
    assert isinstance(answer, flask.Response)
    return answer
