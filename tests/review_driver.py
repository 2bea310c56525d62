"""The review page as a person uses it: the command that serves it, and what is done and seen in the browser."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Served:
    """`fedsir audit review` as a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", "fedsir", "audit", "review", str(folder), "--no-browser", "--json", *words]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            # Shells ignore Ctrl-C for what they start in the background, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self.process.stdout is not None
        self.url: str = json.loads(self.process.stdout.readline())["url"]
        self.origin = self.url.rsplit("/", 2)[0]

    def end(self) -> dict[str, Any]:
        """Press Ctrl-C and return the last line."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=30)
        assert self.process.returncode == 0
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        return last


class Page:
    """What a person does with the page and sees on it."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.driver = browser, browser.driver

    def open(self, url: str, **look: Any) -> None:
        self.browser.open(url, **look)
        self.until(lambda: "decided" in self.text("counted"), "the page is loaded")

    def text(self, name: str) -> str:
        return str(self.driver.find_element("id", name).text)

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        for key in keys:
            # As a keyboard does: to whatever has the focus, also right after a dialog has closed.
            ActionChains(self.driver).send_keys(key).perform()

    def dispatch(self, **event: Any) -> None:
        """Press a key together with others, or hold it."""
        script = "document.body.dispatchEvent(new KeyboardEvent('keydown', {bubbles: true, code: '', ...arguments[0]}))"
        self.driver.execute_script(script, event)

    def choose(self, name: str, value: str) -> None:
        """Choose in a list; selenium's own way takes no quotes in values."""
        element = self.driver.find_element("id", name)
        next(o for o in element.find_elements("tag name", "option") if o.get_attribute("value") == value).click()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 20, 0.02).until(lambda _: condition(), what)

    def expect(self, name: str, text: str) -> None:
        self.until(lambda: self.text(name) == text, f"{name} says {text!r}")

    def decide(self, key: str, n_decided: int, n: int = 8) -> None:
        """Press a key and wait until so many are decided."""
        self.press(key)
        self.until(lambda: self.text("counted").startswith(f"{n_decided} of {n} decided"), f"{n_decided} are decided")

    def shows_image(self) -> bool:
        return bool(self.driver.find_elements("css selector", "#viewport img"))
