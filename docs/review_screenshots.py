"""Make the pictures of docs/review.md: `FEDSIR_DATA=DATA python docs/review_screenshots.py`.

672 images of CIFAR-10 as four sites, of which one has 30 % wrong labels; audited with ResNet-18, reviewed in chromium.
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

from fedsir.auditing.folder import AuditFolder
from fedsir.auditing.from_files import audit_files
from fedsir.auditing.review.server import ReviewServer
from fedsir.auditing.review.session import Review
from fedsir.data.directory import data_directory
from fedsir.data.source import load_source
from fedsir.randomness import KeyedRandom

SITES = np.array(["north", "south", "east", "west"])
CLASSES = ("airplane", "automobile", "cat", "dog", "horse", "ship", "truck")
EACH = 24  # images of a class on a site
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
                digit = str(1 + server.review.class_names.index(label))
                _press(driver, {sample.suggested: "a", sample.given: "r"}.get(label, digit))
                _until(driver, lambda n=n: driver.find_element("id", "counted").text.startswith(f"{n} of"))
            files = [_shoot(driver, folder / "review.png")]
            _look(driver, dark=True)
            files.append(_shoot(driver, folder / "review-dark.png"))
    return files


def _audit(scratch: Path) -> list[str]:
    """Audit images with some wrong labels, into `audit`, and return the true labels."""
    source = load_source("cifar10", data_dir=data_directory(None), seed=0)
    random = KeyedRandom(0, ("review screenshots",)).for_numpy()
    chosen = [c for c, name in enumerate(source.class_names) if name in CLASSES]
    rows = np.concatenate([np.flatnonzero(source.train_labels == c)[: EACH * len(SITES)] for c in chosen])
    names = np.array(source.class_names)
    true = source.train_labels[rows]
    clients = np.tile(np.repeat(SITES, EACH), len(chosen))
    wrong = (clients == "east") & (random.random(len(rows)) < 0.3)
    given = true.copy()
    given[wrong] = random.choice(chosen, wrong.sum())
    images = source.images[source.train_rows[rows]].transpose(0, 2, 3, 1)
    file = scratch / "four-sites.npz"
    np.savez(file, images=images, labels=names[given], clients=clients)
    audit_files(file, scratch / "audit")
    return [str(name) for name in names[true]]


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
