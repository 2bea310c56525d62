"""A real browser for tests of pages.

Tests that use `browser` get the marker `browser` and skip with a reason where Debian's chromium is absent.
"""

from collections.abc import Iterator

import pytest

from browser_driver import Browser, missing, started


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that needs the browser, so that `-m "not browser"` leaves them out."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
