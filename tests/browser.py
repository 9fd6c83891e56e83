"""One headless Chromium for the tests, driven through the DevTools protocol."""

import base64
import json
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

websocket = pytest.importorskip("websocket", reason="websocket-client is not installed")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
NEEDED = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install -y chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "--remote-allow-origins=*",
)
FINDERS = (
    "var one = s => document.querySelector(s), all = s => [...document.querySelectorAll(s)],"
    " button = (s, t) => all(s + ' button').find(b => b.textContent === t);"
)
READY = "document.documentElement && document.documentElement.dataset.ready"


class Browser:
    """One headless Chromium with one tab, and everything it complained of."""

    def __init__(self, profile: Path) -> None:
        self.process = subprocess.Popen(
            [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        port = self._port(profile / "DevToolsActivePort")
        with urlopen(f"http://127.0.0.1:{port}/json", timeout=30) as answer:
            tab = next(one for one in json.load(answer) if one["type"] == "page")
        self.socket = websocket.create_connection(tab["webSocketDebuggerUrl"], timeout=60)
        self.count = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _port(self, file: Path) -> str:
        for _ in range(600):
            if file.exists() and (said := file.read_text()).count("\n"):
                return said.split("\n")[0]
            assert self.process.poll() is None, "Chromium ended before it listened"
            time.sleep(0.05)
        raise AssertionError("Chromium did not listen within 30 s")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found
            self.events.append(answer)

    def open(self, page: Path, width: int = 1280, *, dark: bool = False, media: str = "", hash_: str = "") -> None:
        """Load a page at a width and wait until it is drawn."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", media=media, features=scheme)
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri() + hash_)
        for _ in range(600):
            if self.js(READY) == "yes":
                self.js(FINDERS + "document.documentElement.style.scrollBehavior = 'auto'")
                return
            time.sleep(0.05)
        raise AssertionError(f"the page was not drawn: {self.complaints()}")

    def visit(self, url: str) -> None:
        """Load a page that a server gives, as far as its first answer."""
        self.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")
        self.js(FINDERS)

    def js(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true: addresses change a moment after what changed them."""
        for _ in range(200):
            if self.js(f"Boolean({expression})"):
                return
            time.sleep(0.025)
        raise AssertionError(f"never true: {expression}")

    def key(self, name: str, *, shift: bool = False) -> None:
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, modifiers=8 if shift else 0)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, modifiers=8 if shift else 0)

    def mouse(self, kind: str, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def place(self, selector: str) -> dict[str, float]:
        """Where an element stands in the window, scrolled to."""
        said = self.js(
            f"(() => {{ const e = one({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
            " const r = e.getBoundingClientRect(); return [r.x, r.y, r.width, r.height]; })()"
        )
        return dict(zip(("x", "y", "width", "height"), said, strict=True))

    def picture(self, selector: str) -> Counter[tuple[int, int, int]]:
        """How many pixels of each colour a screenshot of an element has."""
        area = self.place(selector) | {"scale": 1}
        area["y"] += self.js("window.scrollY")
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=area)
        return colours(base64.b64decode(shot["data"]))

    def complaints(self) -> list[dict[str, Any]]:
        """Exceptions, errors on the console, broken rules of the page's policy."""
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [
            one
            for one in self.events
            if one["method"] in wrong
            or (one["method"] == "Runtime.consoleAPICalled" and one["params"]["type"] in ("error", "warning"))
        ]

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self.socket.close()
        finally:
            self.process.wait(20)


@contextmanager
def a_browser() -> Iterator[Browser]:
    """One browser with a profile of its own, which goes when it is closed."""
    profile = Path(tempfile.mkdtemp(prefix="chromium-"))
    found = Browser(profile)
    try:
        yield found
    finally:
        found.close()
        shutil.rmtree(profile, ignore_errors=True)


def colours(png: bytes) -> Counter[tuple[int, int, int]]:
    """The pixels of an 8-bit PNG by colour (the filters of its rows undone)."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    raw, above, found = zlib.decompress(data), bytearray(width * size), Counter[tuple[int, int, int]]()
    for row in range(height):
        start = row * (width * size + 1)
        line = bytearray(raw[start + 1 : start + 1 + width * size])
        for n in range(len(line)):
            left = line[n - size] if n >= size else 0
            corner = above[n - size] if n >= size else 0
            line[n] = (line[n] + _filtered(raw[start], left, above[n], corner)) & 255
        found.update((line[n], line[n + 1], line[n + 2]) for n in range(0, len(line), size))
        above = line
    return found


def _filtered(kind: int, left: int, up: int, corner: int) -> int:
    if kind < 4:
        return (0, left, up, (left + up) // 2)[kind]
    guess = left + up - corner
    return min((abs(guess - one), place, one) for place, one in enumerate((left, up, corner)))[2]
