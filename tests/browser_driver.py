"""Debian's chromium, driven by selenium: what its console says, what it asks the network for, what axe-core finds."""

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOCAL = {"file", "data", "blob", "about"}  # what a page may load without any network
SEVERE = {"serious", "critical"}
# Chromium itself must stay quiet: no update, no sync, no first-run page.
SWITCHES = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
)


class Browser:
    """Chromium with one page; `driver` is selenium's own."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file or an address in a window of that many CSS pixels; forget what the page before said."""
        self.look(width=width, height=height, dark=dark)
        self.driver.get("about:blank")
        self._drain()
        self.driver.get(page.resolve().as_uri() if isinstance(page, Path) else page)

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "screen") -> None:
        """Change size, colour scheme or medium ("screen", "print") of the page that is shown."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},  # clicks would land while the page still scrolls
        ]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def _drain(self) -> list[dict[str, Any]]:
        self._console: list[str] = []
        self._requests: list[str] = []
        self.driver.get_log("browser")
        return list(self.driver.get_log("performance"))

    def console(self) -> list[str]:
        """Return every message of the console since `open`: errors, refusals of the content security policy, logs."""
        self._console += [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]
        return self._console

    def requests(self) -> list[str]:
        """Return every address that was asked for since `open`."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                self._requests.append(message["params"]["request"]["url"])
        return self._requests

    def network_requests(self, allowed: str = "") -> list[str]:
        """Return the requests that left the machine's disk, but for those to the address `allowed` (scheme://host:port)."""
        return [
            url
            for url in self.requests()
            if urlsplit(url).scheme not in LOCAL and not (allowed and url.startswith(f"{allowed}/"))
        ]

    def accessibility_faults(self) -> list[str]:
        """Return what axe-core calls serious or critical on the page as it is now: rule, what is wrong, where."""
        source = files("axe_core_python") / "axe.min.js"
        self.driver.execute_script(source.read_text(encoding="utf-8"))
        found = self.driver.execute_async_script(
            "const done = arguments[arguments.length - 1];"
            "axe.run(document, {resultTypes: ['violations']})"
            ".then(done, error => done({error: String(error)}));"
        )
        assert "error" not in found, found["error"]
        assert found["passes"], "axe-core looked at nothing"
        return [
            f"{fault['id']}: {fault['help']}: {'; '.join(node['html'][:160] for node in fault['nodes'][:3])}"
            for fault in found["violations"]
            if fault["impact"] in SEVERE
        ]

    def visible(self, selector: str) -> list[Any]:
        """Return the elements that are laid out on the page, in one question to the browser."""
        script = "return [...document.querySelectorAll(arguments[0])].filter(e => e.getClientRects().length > 0)"
        return list(self.driver.execute_script(script, selector))

    def texts(self, selector: str) -> list[str]:
        """Return what stands in the elements that are laid out on the page."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".filter(e => e.getClientRects().length > 0).map(e => e.innerText.trim())"
        )
        return list(self.driver.execute_script(script, selector))

    def screenshot(self, path: Path, *, whole: bool = True, of: str = "") -> Path:
        """Write a PNG of the page, of what the window shows of it, or of the element that a selector finds."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        options: dict[str, Any] = {"format": "png", "captureBeyondViewport": whole or bool(of)}
        if of:
            script = (
                "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
                "return {x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: 1}"
            )
            options["clip"] = self.driver.execute_script(script, of)
        elif whole:
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.captureScreenshot", options)["data"]))
        return path

    def pdf(self, path: Path) -> Path:
        """Write the page as it prints, on A4."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "preferCSSPageSize": True, "printBackground": False}
        path.write_bytes(base64.b64decode(self.driver.execute_cdp_cmd("Page.printToPDF", paper)["data"]))
        return path

    def overflow(self) -> int:
        """Return how many CSS pixels the page is wider than its window."""
        script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.driver.execute_script(script))


def missing() -> str | None:
    """Return what is not installed and how to get it, or None."""
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        return "chromium and chromedriver are not installed (Debian: apt-get install chromium chromium-driver)"
    return None


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """Start a browser with a profile of its own in that folder, and end it."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in (*SWITCHES, f"--user-data-dir={profile}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(60)
    try:
        yield Browser(driver)
    finally:
        driver.quit()
