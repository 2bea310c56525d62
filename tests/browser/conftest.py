"""A real browser for tests of pages.

Tests that use `browser` get the marker `browser` and skip with a reason where Debian's chromium is absent.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from audited import audit_of_folder, samples
from browser_driver import Browser, missing, started
from review_driver import Page, Served


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of a process."""
    pytest.importorskip("selenium", reason="selenium is not installed: pip install 'fedsir[dev]'")
    if reason := missing():
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """A browser to open pages with."""
    chromium.driver.get("about:blank")
    return chromium


@pytest.fixture
def page(browser: Browser) -> Page:
    return Page(browser)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Return a function that starts a review; what is still running at the end is stopped."""
    started: list[Served] = []

    def start(folder: Path, *words: str) -> Served:
        started.append(Served(folder, *words))
        return started[-1]

    yield start
    for served in started:
        served.process.kill()
        served.process.communicate()


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return audit_of_folder(tmp_path / "audit", tmp_path / "data", samples())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the browser, so that `-m "not browser"` leaves them out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
