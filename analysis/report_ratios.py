"""The tables of a comparison: the numbers of ``compare --json``, each with its exact value and its place there.

Nothing is computed here. What has no number has a dash, and its reason stands under the tables.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.compare_tables import percent
from analysis.report_comparison import entries, why_of
from analysis.report_decision import ratio_text, shortened
from analysis.report_html import Child, Markup, Whys, details, join, number, slug, table, tag
from analysis.report_requests import href
from analysis.report_study import StudyView

Fields = Mapping[str, Any]
_RATIO = ("launches", "pairs", "ratio", "interval", "MDE", "verdict")
_BESIDE = ("TTFT ratio", "E2E ratio", "answers equal", "valid", "accepted", "tokens/step", "cost")
_OTHERS = ("arm", "ratio of medians", "median of ratios", "ratio of means", "all tokens / all time", "its interval")
_NOTE = (
    "Ratio: geometric mean of paired per-prompt decode rates, above 1 is faster; TTFT and E2E are times, there below 1"
    " is faster. Interval: crossed random effects (prompts and launches) at 95 %. MDE: the least difference that"
    " launches and prompts like these would show with power 80 %; below it a difference may be there and stay unseen."
    " Answers equal: beside the baseline's. Valid: by the prompts' own checks. Cost: a step's time over the baseline's"
    " time a token, which is also the tokens a step at which speculation breaks even."
)


def tables(compared: Fields, view: StudyView, beside: Path) -> Markup:
    """Arm by arm, then by domain and level; what was refused or not measured is a row as well."""
    return _Tables(view, beside).all(compared)


class _Tables:
    """Collects the reasons behind the dashes while the tables are made."""

    def __init__(self, view: StudyView, beside: Path) -> None:
        self.view = view
        self.beside = beside
        self.whys = Whys("comparison")

    def all(self, compared: Fields) -> Markup:
        found = list(entries(compared))
        main = [self._arm(name, entry, path) for name, entry, path in found]
        asked = compared.get("asked") or {}
        subset = f" Taken over {asked['subset']}." if asked.get("subset") else ""
        return join(
            [
                table(["arm", *_RATIO, *_BESIDE], main, left=(0, 6), caption="Arm / baseline"),
                tag("p", _NOTE + subset, class_="note"),
                self._groups(compared, "by_domain", "domain"),
                self._groups(compared, "by_level", "level"),
                self._others(compared),
                self._goodput(compared),
                self.whys.list(),
            ]
        )

    def _arm(self, name: str, entry: Fields, path: str) -> list[Child]:
        if entry.get("not_measured") or entry.get("ratio") is None:
            return [name, self._no_number(entry)]
        return [
            tag("a", name, href=f"#{slug('pairs', name, 'all')}"),
            *self._numbers(entry, path, name, "all"),
            self._ratio(entry, path, "ttft_ratio"),
            self._ratio(entry, path, "e2e_ratio"),
            self._share(entry, path, "outputs_equal", "outputs_compared", slug("outputs", name)),
            self._share(entry, path, "n_valid", "n_judged", None),
            self._nested(entry, path, "acceptance", "rate"),
            self._nested(entry, path, "cycle_cost", "tokens_per_step"),
            self._nested(entry, path, "cycle_cost", "cost"),
        ]

    def _no_number(self, entry: Fields) -> Markup:
        failed, link, cause = entry.get("not_measured"), None, None
        said = str(why_of(entry, "ratio"))
        if failed:
            said = f"not measured: {failed.get('stage')}, {failed.get('symptom')}"
            cause = f"; shown cause: {failed['cause']}" if failed.get("cause") else None
            if failed.get("folder"):
                link = tag("a", " its folder", href=href(self._inside(str(failed["folder"])), self.beside))
        return tag("td", shortened(said), cause, link, colspan=len(_RATIO) + len(_BESIDE), class_="l")

    def _inside(self, named: str) -> Path:
        """A folder as the comparison names it: from the study's folder, or as a path of its own."""
        return self.view.path / named if (self.view.path / named).exists() else Path(named)

    def _groups(self, compared: Fields, key: str, title: str) -> Markup | None:
        rows = [
            [arm, name, *self._numbers(group, f"{path}.{key}.{name}", arm, name if key == "by_domain" else "all")]
            for arm, entry, path in entries(compared)
            if entry.get("ratio") is not None
            for name, group in (entry.get(key) or {}).items()
        ]
        if not rows:
            return None
        return details(f"By {title}", table(["arm", title, *_RATIO], rows, left=(0, 1, 7)), open_=True)

    def _others(self, compared: Fields) -> Markup | None:
        rows: list[list[Child]] = []
        for name, entry, path in entries(compared):
            found = entry.get("other_ratios")
            if isinstance(found, Mapping):
                keys = ("ratio_of_medians", "median_of_ratios", "ratio_of_means", "total_token_ratio")
                whys, where = found.get("why") or {}, f"{path}.other_ratios"
                cells = [self._plain(found.get(key), f"{where}.{key}", whys.get(key)) for key in keys]
                span = self._span(found.get("total_token_interval"), f"{where}.total_token_interval",
                                  whys.get("total_token_interval"))  # fmt: skip
                rows.append([name, *cells, span])
        return details("Other ratios people quote, each by its own name", table(_OTHERS, rows)) if rows else None

    def _goodput(self, compared: Fields) -> Markup | None:
        """The share of requests within the scenario's objectives; None where it sets none."""
        rows: dict[str, list[Child]] = {}
        for _, entry, path in entries(compared):
            for name, found in (entry.get("goodput") or {}).items():
                share = found.get("share")
                if share is None:
                    continue
                at = f"{path}.goodput.{name}"
                shown = [number(end, f"{end:.1%}", f"{at}.share.{place}") for place, end in enumerate(share)]
                rows[name] = [
                    name,
                    number(found["n_sent"], str(found["n_sent"]), f"{at}.n_sent"),
                    number(found["n_good"], str(found["n_good"]), f"{at}.n_good"),
                    found["n_failed"],
                    shown[0] if share[0] == share[1] else join([shown[0], " to ", shown[1]]),
                ]
        titles = ["arm", "sent", "met all", "failed", "share"]
        said = "Within the objectives: a request that failed has not met them"
        return details(said, table(titles, rows.values())) if rows else None

    def _numbers(self, entry: Fields, path: str, arm: str, domain: str) -> list[Child]:
        because = entry.get("because")
        ratio = self._plain(entry.get("ratio"), f"{path}.ratio", why_of(entry, "ratio"))
        return [
            *[number(entry.get(name), str(entry.get(name)), f"{path}.{name}") for name in ("n_launches", "n_pairs")],
            tag("a", ratio, href=f"#{slug('pairs', arm, domain)}") if entry.get("ratio") is not None else ratio,
            self._span(entry.get("interval"), f"{path}.interval", why_of(entry, "interval")),
            self._plain(entry.get("mde_crossed"), f"{path}.mde_crossed", why_of(entry, "mde"), shown=percent),
            tag("span", entry.get("verdict") or "no verdict", title=None if because is None else str(because)),
        ]

    def _ratio(self, entry: Fields, path: str, key: str) -> Markup:
        return self._plain(entry.get(key), f"{path}.{key}", why_of(entry, key))

    def _nested(self, entry: Fields, path: str, part: str, key: str) -> Markup:
        found = entry.get(part) or {}
        whys = found.get("why")
        own = whys.get(key) if isinstance(whys, Mapping) else whys
        why = (entry.get("why") or {}).get(part) or own
        return self._plain(found.get(key), f"{path}.{part}.{key}", None if why is None else str(why))

    def _share(self, entry: Fields, path: str, part: str, whole: str, anchor: str | None) -> Markup:
        if entry.get(whole) is None:
            return self.whys.dash(why_of(entry, whole) or why_of(entry, part))
        said = join([number(entry.get(part), str(entry.get(part)), f"{path}.{part}"), f" of {entry[whole]}"])
        return said if anchor is None else tag("a", said, href=f"#{anchor}")

    def _span(self, bounds: Any, path: str, why: str | None) -> Markup:
        if not bounds:
            return self.whys.dash(why)
        ends = [number(end, ratio_text(end), f"{path}.{place}") for place, end in enumerate(bounds)]
        return join([ends[0], " to ", ends[1]])

    def _plain(self, value: Any, path: str, why: str | None, *, shown: Callable[[float], str] = ratio_text) -> Markup:
        if value is None:
            return self.whys.dash(why)
        return number(value, shown(value), path)
