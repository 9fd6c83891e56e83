"""The pages of ours in Locust's web UI, and what ties a run to its start and stop there.

    /                    Locust: the options of every locustfile as fields, arms and scenarios to choose from
    /evidence/           levels, acceptance, client health and live charts; at the end the verdict, report and folder
    /evidence/live.json  what that page asks for each second
    /evidence/report     report.html of the last sealed run
    /evidence/run/       the files of the last sealed run

What cannot run is refused in words on Locust's page. A stop drains nothing: what was under way is recorded as
cancelled, and the folder is sealed and judged as ever. Our tables stand beside Locust's and add nothing to its totals.
"""

import json
from argparse import Namespace
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import flask
from locust.env import Environment

from locustfiles._offered import offer_also, offer_only
from locustfiles._web_login import logged_in, offer_login
from locustfiles._web_runs import Json, WebRuns

PAGE = Path(__file__).with_name("web") / "evidence.html"
TABLE = "evidence-levels"
COLUMNS = {
    "level": "Level",
    "n_planned": "Planned",
    "n_ended": "Ended",
    "n_failed": "Failed",
    "ttft_median_ms": "TTFT median (ms)",
    "tpot_median_ms": "TPOT median (ms)",
    "decode_tok_per_s": "Decode (tok/s)",
    "acceptance": "Acceptance",
    "lag_max_ms": "Client lag max (ms)",
}


class Pages:
    """What is answered under /evidence/."""

    def __init__(self, runs: WebRuns) -> None:
        self._runs = runs

    def page(self) -> flask.Response:
        return flask.send_file(PAGE, max_age=0)

    def live(self) -> flask.Response:
        return flask.jsonify(self._runs.as_json())

    def report(self) -> flask.Response:
        if self._runs.report is None:
            return _plain("there is no report: it is made once a run is sealed", 404)
        return flask.send_file(self._runs.report.resolve(), max_age=0)

    def folder(self) -> flask.Response:
        path = self._runs.path
        if path is None:
            return _plain("no run of this page has been sealed yet", 404)
        files = sorted(str(one.relative_to(path)) for one in path.rglob("*") if one.is_file())
        return flask.make_response(flask.render_template_string(_LISTING, path=str(path), files=files))

    def file(self, name: str) -> flask.Response:
        path = self._runs.path
        if path is None:
            return _plain("no run of this page has been sealed yet", 404)
        answer = flask.send_from_directory(path.resolve(), name, mimetype="text/plain", max_age=0)
        answer.headers["X-Content-Type-Options"] = "nosniff"
        return answer


def attach(
    environment: Environment,
    open_session: Callable[[Namespace], Any],
    close_session: Callable[[], int | None],
    kinds: Iterable[str],
) -> None:
    """Puts the pages into Locust's web UI and ties runs to its start and stop.

    ``kinds`` are those of the scenarios that the locustfile runs.
    Raises UsageError where a login was asked for and no password was given.
    """
    ui: Any = environment.web_ui
    assert environment.parsed_options is not None
    offer_only(kinds)
    offer_also(environment.parsed_options.scenario)
    runs = WebRuns(environment, open_session, close_session)
    if environment.parsed_options.web_login:
        offer_login(ui)
    pages = Pages(runs)
    for rule, view in (
        ("/evidence/", pages.page),
        ("/evidence/live.json", pages.live),
        ("/evidence/report", pages.report),
        ("/evidence/run/", pages.folder),
        ("/evidence/run/<path:name>", pages.file),
    ):
        ui.app.add_url_rule(rule, f"evidence_{view.__name__}", ui.auth_required_if_enabled(view))

    known_hosts = _known_hosts(environment.parsed_options)

    def before() -> flask.Response | None:
        """A start opens the run first; a page of another site can neither look, start nor stop."""
        request = flask.request
        if known_hosts and request.host.rsplit(":", 1)[0] not in known_hosts:
            return _plain(f"{request.host} is not what this page listens as: open {' or '.join(known_hosts)}", 403)
        if request.method != "POST":
            return None
        origin = request.headers.get("Origin")
        if origin is not None and origin.split("://", 1)[-1] != request.host:
            return _plain("asked for by another site's page: use this page", 403)
        if request.endpoint != "locust.swarm" or (ui.web_login and not logged_in()):
            return None  # without a login Locust refuses it
        said = runs.begin(request.form)
        message = "the run has begun" if said is None else said
        return flask.jsonify({"success": said is None, "message": message, "host": environment.host})

    def after(answer: flask.Response) -> flask.Response:
        """Our table beside Locust's own, and a link on its page, whose tabs hold tables only."""
        answer.headers["X-Frame-Options"] = "DENY"
        if flask.request.endpoint == "locust.request_stats" and answer.is_json:
            found = answer.get_json()
            found["extended_stats"] = [{"key": TABLE, "data": _rows(runs.as_json())}]
            answer.set_data(json.dumps(found))
        elif (
            flask.request.endpoint == "locust.index"
            and answer.mimetype == "text/html"
            and not answer.direct_passthrough
        ):
            answer.set_data(answer.get_data().replace(b"</body>", _LINK.encode() + b"</body>"))
        return answer

    locusts_own = ui.update_template_args

    def without_secrets() -> None:
        """Locust writes what was typed for a secret field into its page, hidden from the eye only."""
        locusts_own()
        ui.template_args["extra_options"]["header"]["default_value"] = None

    ui.update_template_args = without_secrets
    ui.app.before_request(before)
    ui.app.after_request(after)
    structure = [{"key": key, "title": title} for key, title in COLUMNS.items()]
    ui.template_args["extended_tabs"] = [{"title": "Evidence", "key": TABLE}]
    ui.template_args["extended_tables"] = [{"key": TABLE, "structure": structure}]
    events: Any = environment.events
    events.test_stop.add_listener(lambda **_: runs.end())
    events.quitting.add_listener(lambda **_: runs.stop())


def _known_hosts(parsed: Namespace) -> tuple[str, ...]:
    """The names a request may ask for; () where the page listens everywhere, or a login stands before it.

    Without this a site whose name is made to point here could read and start runs from a visitor's browser.
    """
    host = parsed.web_host
    if parsed.web_login or host in ("", "*", "0.0.0.0", "::"):
        return ()
    return tuple(dict.fromkeys((host, "127.0.0.1", "localhost", "[::1]")))


def _rows(said: Json) -> list[Json]:
    live = said["live"] or {}
    rows = []
    for level in live.get("levels", []):
        acceptance = level["acceptance"]
        rate = acceptance["rate"]
        rows.append(
            {
                "level": level["level"] or "all",
                "n_planned": level["n_planned"],
                "n_ended": level["n_ended"],
                "n_failed": level["n_failed"],
                "ttft_median_ms": _ms(level["ttft_median_s"]),
                "tpot_median_ms": _ms(level["tpot_median_s"]),
                "decode_tok_per_s": _rounded(level["decode_median_tok_per_s"]),
                "acceptance": acceptance["state"] if rate is None else f"{100 * rate:.1f} %",
                "lag_max_ms": _ms(level["lag_max_s"]),
            }
        )
    return rows


def _ms(seconds: float | None) -> float | str:
    return "–" if seconds is None else round(seconds * 1000, 2)


def _rounded(value: float | None) -> float | str:
    return "–" if value is None else round(value, 1)


def _plain(text: str, status: int) -> flask.Response:
    return flask.Response(text + "\n", status=status, mimetype="text/plain")


_LINK = (
    '<a href="./evidence/" style="position:fixed;right:16px;bottom:16px;z-index:9999;padding:8px 14px;'
    'border-radius:6px;background:#0072b2;color:#fff;font:600 14px system-ui,sans-serif;text-decoration:none">'
    "Evidence: live charts, verdict, report</a>"
)
_LISTING = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{{ path }}</title>
<body style="font:15px system-ui,sans-serif;max-width:900px;margin:24px auto;padding:0 16px">
<h1 style="font-size:1.2rem">{{ path }}</h1><p><a href="../">back to the run</a></p>
<ul>{% for file in files %}<li><a href="{{ file }}">{{ file }}</a></li>{% endfor %}</ul></body></html>"""
