"""Makes docs/images: pictures of report pages, from runs and an audit on digits that take a minute.

    python docs/make_screenshots.py [FOLDER]

FOLDER keeps the runs and pages; by default they are thrown away. Needs chromium, as the browser tests do.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import fedsir  # noqa: E402
from browser_driver import Browser, missing, started  # noqa: E402
from fedsir.report.write import write_report  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LARGEST = 150_000  # bytes of a picture
CLINICS = ("Aachen", "Bergen", "Cork", "Delft", "Espoo", "Faro", "Ghent", "Halle", "Izmir", "Jena")


def make_pages(folder: Path) -> dict[str, Path]:
    """Return the pages to take pictures of, by name."""
    plus = {"method.preset": "plus", "data.noise_rate": [0.1, 0.9]}
    one = fedsir.run(method="fedsir", rounds=8, settings=plus, out=folder / "plus").folder
    several = [
        fedsir.run(method=method, rounds=12, out=folder / method).folder for method in ("fedavg", "fednoro", "fedsir")
    ]
    data = fedsir.FederatedData.load("digits", n_clients=10, alpha=100.0, noise_rate=0.4, noisy_clients=3, seed=0)
    features = data.images[data.image_rows].reshape(len(data.given_labels), -1) / 255.0
    owners = np.repeat(CLINICS, np.diff(data.offsets))
    found = fedsir.audit(features, [f"digit {label}" for label in data.given_labels], owners)
    return {
        "run": write_report([one], folder / "run.html", similarities=True).path,
        "comparison": write_report(several, folder / "comparison.html").path,
        "audit": found.report(folder / "audit.html"),
    }


def take(browser: Browser, pages: dict[str, Path]) -> None:
    """Write every picture that the docs show."""
    for name, page, width, height, dark, of in (
        ("report-audit", "audit", 1100, 1190, False, ""),
        ("report-run", "run", 1100, 900, False, ""),
        ("report-judged", "run", 1100, 900, False, "#judged .card"),
        ("report-similarities", "run", 1100, 900, False, "#similarities .card"),
        ("report-labels", "run", 1100, 900, False, "#labels .card"),
        ("report-comparison", "comparison", 1100, 900, False, "#curves .card"),
        ("report-phone", "run", 390, 844, False, ""),
        ("report-phone-dark", "audit", 390, 844, True, ""),
    ):
        browser.open(pages[page], width=width, height=height, dark=dark)
        path = browser.screenshot(IMAGES / f"{name}.png", whole=False, of=of)
        with Image.open(path) as picture:  # few colours are in it: a palette is a third of the size
            picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
        n_bytes = path.stat().st_size
        print(f"{path.relative_to(ROOT)}  {n_bytes:,} bytes")
        assert n_bytes < LARGEST, f"{path} is too large for a repository"


def main(folder: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    pages = make_pages(folder)
    with tempfile.TemporaryDirectory() as profile, started(Path(profile)) as browser:
        take(browser, pages)


if __name__ == "__main__":
    if reason := missing():
        sys.exit(reason)
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
