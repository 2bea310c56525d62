"""Report pages in a real browser: quiet, offline, accessible, and their tables, lines and pictures obey."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

import fedsir
from browser_driver import Browser
from fedsir.report.audit_page import audit_page, client_page
from fedsir.report.comparison_page import comparison_page
from fedsir.report.run_page import run_page
from report_views import HOSTILE, audit_view, client_view, hostile_run

TINY: dict[str, Any] = {"data.n_train": 300, "data.n_test": 60, "data.n_clients": 5, "method.lr": 0.003}
KINDS = ("run", "comparison", "audit", "client", "hostile run", "hostile audit", "hostile client", "many clients")


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind of page, each in a file with an odd name."""
    folder = tmp_path_factory.mktemp("pages #1 & more")
    settings = TINY | {"method.relabel.every": 1}
    one = fedsir.run(method="fedsir", rounds=3, settings=settings, out=folder / "sir").folder
    other = fedsir.run(method="fedavg", rounds=3, settings=TINY, out=folder / "avg").folder
    text = {
        "run": run_page(one, similarities=True),
        "comparison": comparison_page([other, one]),
        "audit": audit_page(audit_view()),
        "client": client_page(client_view()),
        "hostile run": run_page(hostile_run(folder)),
        "hostile audit": audit_page(audit_view(names=HOSTILE)),
        "hostile client": client_page(client_view(names=HOSTILE)),
        "many clients": audit_page(audit_view(1000, 1000)),
    }
    for kind, page in text.items():
        (folder / f"{kind} %20.html").write_text(page, encoding="utf-8")
    return {kind: folder / f"{kind} %20.html" for kind in text}


@pytest.fixture
def shown(browser: Browser, pages: dict[str, Path]) -> Iterator[Callable[..., Browser]]:
    """Return a function that opens a page; at the end nothing may have complained or asked a network."""

    def show(kind: str, **look: Any) -> Browser:
        browser.open(pages[kind], **look)
        return browser

    yield show
    assert browser.console() == []
    assert browser.network_requests() == []
    with pytest.raises(Exception, match="no such alert"):
        browser.driver.switch_to.alert.dismiss()


def first_cells(browser: Browser, table: str) -> list[str]:
    return browser.texts(f"{table} tbody tr > :first-child")


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_quiet_fit_and_have_no_serious_fault(kind: str, shown: Callable[..., Browser]) -> None:
    looks = [(1280, False), (1280, True), (390, False)] if kind in KINDS[:4] else [(390, False)]
    for width, dark in looks:
        browser = shown(kind, width=width, dark=dark)
        assert browser.overflow() == 0, f"{width} pixels"
        browser.driver.execute_script("for (const box of document.querySelectorAll('details')) box.open = true")
        assert browser.overflow() == 0, f"{width} pixels, unfolded"
        if kind != "many clients":  # as "audit", only slower
            assert browser.accessibility_faults() == [], f"{width} pixels, {'dark' if dark else 'light'}"


def test_clients_are_filtered(shown: Callable[..., Browser]) -> None:
    browser = shown("many clients")
    status = browser.driver.find_element(By.CSS_SELECTOR, "#clients [data-count]")
    assert status.text == "25 of 1,000 shown, 1,000 match"
    browser.driver.find_element(By.ID, "find-client").send_keys("CLINIC 99")
    assert len(first_cells(browser, "#clients")) == 11  # 99, and 990 to 999
    assert status.text == "11 of 1,000 shown"
    Select(browser.driver.find_element(By.ID, "by-verdict")).select_by_visible_text("not assessed")
    assert first_cells(browser, "#clients") == ["clinic 999"]
    browser.driver.find_element(By.ID, "find-client").send_keys(Keys.CONTROL, "a", Keys.DELETE)
    Select(browser.driver.find_element(By.ID, "by-verdict")).select_by_visible_text("clean")
    more = browser.driver.find_element(By.CSS_SELECTOR, "#clients [data-more]")
    assert more.text == "Show all 666"
    more.click()
    assert len(first_cells(browser, "#clients")) == 666


def test_a_tile_leads_to_its_row_even_if_that_is_folded(shown: Callable[..., Browser]) -> None:
    browser = shown("many clients")
    tile = browser.driver.find_elements(By.CSS_SELECTOR, ".strip a")[59]
    name = tile.text.splitlines()[0]
    tile.click()
    row = browser.driver.find_element(By.CSS_SELECTOR, "tr:target")
    assert row.is_displayed()
    assert row.find_element(By.TAG_NAME, "th").text == name


def test_tables_are_sorted_with_the_keyboard(shown: Callable[..., Browser]) -> None:
    browser = shown("audit")
    heads = browser.driver.find_elements(By.CSS_SELECTOR, "#clients thead th")
    names = [head.text for head in heads]
    samples = heads[names.index("samples")]

    def column() -> list[int]:
        cells = browser.texts(f"#clients tbody tr > :nth-child({names.index('samples') + 1})")
        return [int(cell.replace(",", "")) for cell in cells]

    samples.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert samples.get_attribute("aria-sort") == "descending"
    assert column() == sorted(column(), reverse=True)
    samples.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
    assert samples.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(column())
    rates = heads[names.index("noise rate")]
    rates.find_element(By.TAG_NAME, "button").click()
    assert samples.get_attribute("aria-sort") is None
    assert first_cells(browser, "#clients")[-1] == "clinic 9"  # what is not known comes last …
    rates.find_element(By.TAG_NAME, "button").click()
    assert first_cells(browser, "#clients")[-1] == "clinic 9"  # … whichever way


def test_pictures_are_filtered(shown: Callable[..., Browser]) -> None:
    browser = shown("run")
    every = len(browser.driver.find_elements(By.CSS_SELECTOR, ".grid-of-images li"))
    assert len(browser.visible(".grid-of-images li")) == min(every, 24)
    Select(browser.driver.find_element(By.ID, "pictures-judged")).select_by_visible_text("wrong")
    lines = browser.texts(".grid-of-images li .where")
    wrong = browser.driver.find_elements(By.CSS_SELECTOR, '.grid-of-images li[data-judged="wrong"]')
    assert len(browser.visible(".grid-of-images li")) == min(len(wrong), 24)
    assert all("in truth" in line for line in lines if line.startswith(("✓", "✗")))


def test_lines_can_be_hidden(shown: Callable[..., Browser]) -> None:
    browser = shown("comparison")
    button = browser.driver.find_element(By.CSS_SELECTOR, 'button[data-series="1"]')
    line = browser.driver.find_element(By.CSS_SELECTOR, '#curves svg.wide [data-of="1"]')
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "false"
    assert line.get_attribute("visibility") == "hidden"
    button.click()
    assert line.get_attribute("visibility") is None


def test_values_show_under_the_pointer(shown: Callable[..., Browser]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser = shown("hostile audit")
    mark = browser.visible("#rates svg.wide [data-tip]")[0]
    tip = browser.driver.find_element(By.ID, "tip")
    for step in range(50):  # scrolling to the mark hides what is shown, some frames later: a hand moves on
        ActionChains(browser.driver).move_to_element_with_offset(mark, step % 2, 0).perform()
        if tip.is_displayed():
            break
        time.sleep(0.1)
    assert tip.is_displayed()
    assert tip.text == mark.get_attribute("data-tip")
    ActionChains(browser.driver).send_keys(Keys.ESCAPE).perform()
    assert not tip.is_displayed()


def test_the_keyboard_reaches_the_content_first(shown: Callable[..., Browser]) -> None:
    browser = shown("run")
    browser.driver.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    focused = browser.driver.switch_to.active_element
    assert focused.text == "Skip to the content"
    outline = focused.value_of_css_property("outline-style")
    assert outline == "solid"
    focused.send_keys(Keys.ENTER)
    assert browser.driver.switch_to.active_element.get_attribute("id") == "content"


def test_paper_gets_what_the_screen_folds(shown: Callable[..., Browser], tmp_path: Path) -> None:
    browser = shown("run", dark=True)
    folded = "return [...document.querySelectorAll('details[data-print]')].map(box => box.open)"
    assert not any(browser.driver.execute_script(folded))
    browser.driver.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert all(browser.driver.execute_script(folded))
    browser.driver.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not any(browser.driver.execute_script(folded))
    browser.look(media="print", dark=True)
    body = browser.driver.find_element(By.TAG_NAME, "body")
    assert body.value_of_css_property("background-color") == "rgba(255, 255, 255, 1)"
    assert not browser.visible(".tools")
    assert browser.pdf(tmp_path / "page.pdf").stat().st_size > 20_000
