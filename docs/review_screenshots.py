"""Make the pictures of docs/review.md: `python docs/review_screenshots.py`.

scikit-learn's digits as four sites, of which one has 30 % wrong labels; audited by their pixels, reviewed in chromium.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from fedsir.auditing.folder import AuditFolder
from fedsir.auditing.from_files import audit_files
from fedsir.auditing.review.server import ReviewServer
from fedsir.auditing.review.session import Review
from fedsir.randomness import KeyedRandom

SITES = np.array(["north", "south", "east", "west"])
CLASSES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
ZOOM = 16  # an image has 8 × 8 pixels
SIZE = (1366, 768)
SECONDS = 20


def review_screenshots(driver: Any, folder: Path) -> list[Path]:
    """Write review.png and review-dark.png, seven samples decided by their true labels, and return the two files.

    driver : selenium's, of a chromium
    """
    with tempfile.TemporaryDirectory() as scratch:
        true = _audit(Path(scratch))
        with _served(Review(AuditFolder(Path(scratch) / "audit"))) as server:
            _look(driver, dark=False)
            driver.get(server.url)
            _until(driver, lambda: driver.find_elements("css selector", "#viewport img"))
            for n, sample in enumerate(server.review.samples[:7], start=1):
                label = true[int(sample.id)]
                digit = str((1 + server.review.class_names.index(label)) % 10)
                _press(driver, {sample.suggested: "a", sample.given: "r"}.get(label, digit))
                _until(driver, lambda n=n: driver.find_element("id", "counted").text.startswith(f"{n} of"))
            files = [_shoot(driver, folder / "review.png")]
            _look(driver, dark=True)
            files.append(_shoot(driver, folder / "review-dark.png"))
    return files


def _audit(scratch: Path) -> list[str]:
    """Audit images with some wrong labels, into `audit`, and return the true labels."""
    digits = load_digits()
    n, random = len(digits.target), KeyedRandom(0, ("review screenshots",)).for_numpy()
    clients = random.choice(SITES, n)
    wrong = (clients == "east") & (random.random(n) < 0.3)
    given = np.where(wrong, random.integers(0, len(CLASSES), n), digits.target)
    paths = [f"{client}/{row:04d}.png" for row, client in enumerate(clients)]
    for path, pixels in zip(paths, digits.images, strict=True):
        (scratch / path).parent.mkdir(exist_ok=True)
        Image.fromarray(np.kron(255 - 15.9 * pixels, np.ones((ZOOM, ZOOM))).astype(np.uint8)).save(scratch / path)
    file = scratch / "four-sites.npz"
    np.savez(file, features=digits.data, labels=CLASSES[given], clients=clients, paths=paths)
    audit_files(file, scratch / "audit")
    return CLASSES[digits.target].tolist()


@contextmanager
def _served(review: Review) -> Iterator[ReviewServer]:
    with ReviewServer(review) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _look(driver: Any, *, dark: bool) -> None:
    size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def _press(driver: Any, keys: str) -> None:
    for key in keys:
        driver.switch_to.active_element.send_keys(key)


def _until(driver: Any, condition: Any) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(driver.find_element("tag name", "body").text)
        time.sleep(0.05)


def _shoot(driver: Any, path: Path) -> Path:
    time.sleep(0.5)  # pictures beside the large one come a moment later
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(base64.b64decode(shot["data"]))
    with Image.open(path) as picture:  # few colours are in it: a palette is a third of the size
        picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    return path


def main() -> None:
    """Start a chromium, take the pictures, say where they are."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(switch)
    driver = webdriver.Chrome(options, webdriver.ChromeService(executable_path=shutil.which("chromedriver")))
    try:
        for path in review_screenshots(driver, Path(__file__).parent / "images"):
            print(path)
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
