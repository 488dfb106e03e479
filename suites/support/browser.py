"""Chromium without a screen: what a page asks for, complains about, and looks like."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
START_SECONDS = 60.0
LOAD_SECONDS = 60.0
BROKEN_IMAGES = """Array.from(document.images).filter(i => !i.complete || i.naturalWidth === 0)
  .map(i => i.src)"""
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth + 1"


def executable() -> str | None:
    """Path of a Chromium; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@dataclass
class Seen:
    """One page as the browser saw it: addresses that it asked for, its own first, complaints of
    console and log, images without a picture, and whether it must be scrolled sideways.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    wider: bool = False


def look(
    pages: Sequence[Path],
    *,
    dark: bool = False,
    width: int = 1280,
    shots: Sequence[Path] = (),
) -> list[Seen]:
    """Open pages one after another, for a reader whose system prefers what ``dark`` says.

    Pictures of the whole pages go to ``shots``, one for each, if there are any.
    """
    path = executable()
    assert path is not None, "no chromium here"
    # A killed child may still be writing while the folder goes; that says nothing of the pages.
    with tempfile.TemporaryDirectory(
        prefix="attnbench-chromium-", ignore_cleanup_errors=True
    ) as folder:
        process = subprocess.Popen(
            [
                path,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
                "--remote-debugging-port=0",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            port = _port(Path(folder) / "DevToolsActivePort", process)
            return asyncio.run(_look(port, pages, dark, width, shots))
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            with suppress(ProcessLookupError):  # its children write on after it: the whole group
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if file.is_file() and (lines := file.read_text().split()):
            return int(lines[0])
        time.sleep(0.1)
    raise RuntimeError("chromium did not start")


class _Tab:
    """A tab, by the DevTools protocol."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.number, self.seen, self.loaded = socket, 0, Seen(), False

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        wanted = self.number
        await self.socket.write_message(
            json.dumps({"id": wanted, "method": method, "params": parameters})
        )
        while True:
            message = await self.message(LOAD_SECONDS)
            if message.get("id") == wanted:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return dict(message["result"])

    async def message(self, seconds: float) -> dict[str, Any]:
        text = await asyncio.wait_for(self.socket.read_message(), seconds)
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, said: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.seen.requests.append(said["request"]["url"])
        elif method == "Log.entryAdded":
            self.seen.complaints.append(said["entry"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.seen.complaints.append(str([a.get("value") for a in said["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.seen.complaints.append(said["exceptionDetails"]["text"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    async def value(self, expression: str) -> Any:
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")


async def _look(
    port: int, pages: Sequence[Path], dark: bool, width: int, shots: Sequence[Path]
) -> list[Seen]:
    from tornado.websocket import websocket_connect

    request = urllib.request.Request(f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT")
    with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
        address = json.load(answer)["webSocketDebuggerUrl"]
    socket = await websocket_connect(address, max_message_size=2**28)
    tab = _Tab(socket)
    for domain in ("Page", "Network", "Log", "Runtime"):
        await tab.call(f"{domain}.enable")
    await tab.call(
        "Emulation.setEmulatedMedia",
        features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
    )
    await tab.call(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=900,
        deviceScaleFactor=1,
        mobile=False,
    )
    found = []
    for number, page in enumerate(pages):
        tab.seen, tab.loaded = Seen(), False
        await tab.call("Page.navigate", url=page.resolve().as_uri())
        while not tab.loaded:
            await tab.message(LOAD_SECONDS)
        tab.seen.broken = list(await tab.value(BROKEN_IMAGES))
        tab.seen.wider = bool(await tab.value(WIDER))
        found.append(tab.seen)
        if shots:
            picture = await tab.call("Page.captureScreenshot", captureBeyondViewport=True)
            shots[number].write_bytes(base64.b64decode(picture["data"]))
    socket.close()
    return found
