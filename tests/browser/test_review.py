"""The review page in a real browser, driven by keyboard: decide, reload, undo, filter, close and reopen, apply."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audited import CLASSES, CLIENTS, audit_of_features, samples
from fedsir.auditing.decisions import read_decisions
from fedsir.auditing.folder import AuditFolder
from fedsir.auditing.review.session import Review
from review_driver import Page, Served

NORTH, EAST = CLIENTS[:2]
CAT, DOG, TAG = CLASSES


def apply(folder: Path) -> dict[str, str]:
    """Run `fedsir audit apply` and return the label of each sample by id."""
    command = [sys.executable, "-m", "fedsir", "audit", "apply", str(folder), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    labels = {}
    for name in json.loads(done.stdout.splitlines()[-1])["files"]:
        if Path(name).name == "labels.csv":
            with Path(name).open(newline="", encoding="utf-8") as file:
                labels |= {row["id"]: row["label"] for row in csv.DictReader(file)}
    return labels


def test_from_the_first_key_to_the_new_labels(page: Page, serve: Callable[..., Served], audit: Path) -> None:
    listed = Review(AuditFolder(audit)).samples
    served = serve(audit)
    page.open(served.url)
    page.expect("counted", "0 of 8 decided")
    page.expect("place", "Sample 1 of 8")
    page.until(page.shows_image, "an image is shown")
    assert page.text("given") == listed[0].given
    assert page.text("suggested") == listed[0].suggested
    assert page.text("about").split("\n")[1::2][:2] == [listed[0].client, listed[0].path]

    page.decide("a", 1)
    page.expect("place", "Sample 2 of 8")
    page.decide("r", 2)
    page.expect("place", "Sample 3 of 8")
    third = next(name for name in CLASSES if name not in (listed[2].given, listed[2].suggested))
    page.press("c")
    page.until(lambda: page.driver.switch_to.active_element.get_attribute("id") == "find", "the classes are open")
    page.press(third[:4].upper(), "\ue007")  # case does not matter; Enter
    page.expect("place", "Sample 4 of 8")
    digit = str(1 + AuditFolder(audit).class_names.index(listed[3].given))
    page.decide(digit, 4)  # the given label by its digit is a rejection
    assert page.text("saved") == f"Saved: ✕ {listed[3].given}"

    page.driver.refresh()  # and it goes on where it was
    page.expect("counted", "4 of 8 decided")
    page.expect("place", "Sample 5 of 8")
    page.press("\ue012")  # back: what was decided is shown
    page.expect("place", "Sample 4 of 8")
    page.expect("decision", f"✕\nRejected: the label stays {listed[3].given}")

    page.press("u")
    page.expect("counted", "3 of 8 decided")
    page.expect("decision", "○\nNot decided yet")
    page.press("u")
    page.expect("counted", "2 of 8 decided")
    page.expect("place", "Sample 3 of 8")
    page.decide("a", 3)

    page.choose("by-client", EAST)
    page.expect("place", "Sample 1 of 2")
    page.expect("counted", "3 of 8 decided; 0 of these 2")
    page.decide("a", 4)
    page.choose("by-client", "")
    page.choose("by-state", "decided")
    page.until(lambda: page.text("place").endswith("of 4"), "the decided ones are listed")
    page.choose("by-state", "reject")
    page.expect("place", "Sample 1 of 1")
    assert page.text("given") == listed[1].given
    page.choose("by-given", CAT if listed[1].given != CAT else DOG)
    page.until(lambda: "No sample fits the filters" in page.text("empty"), "the list is empty")
    page.press("u")  # of a sample outside the filters: they give way
    page.expect("counted", "3 of 8 decided")
    page.expect("place", "Sample 7 of 8")

    assert page.browser.console() == []
    assert page.browser.network_requests(allowed=served.origin) == []
    assert served.end()["decided"] == 3

    again = serve(audit)  # closed and opened again, at another address
    assert again.url != served.url
    page.open(again.url)
    page.expect("counted", "3 of 8 decided")
    page.expect("place", "Sample 4 of 8")
    for n in range(4, 9):
        page.decide("a", n)
    page.until(lambda: "fedsir audit apply" in page.text("done"), "the next command is shown")
    assert again.end() == {"samples": 8, "decided": 8, "next": f"fedsir audit apply {audit}"}

    labels = apply(audit)
    some = samples()
    expected = {str(row): label for row, label in enumerate(some.true)}
    expected[listed[1].id] = listed[1].given  # the one that was rejected
    assert labels == expected


@pytest.mark.parametrize("dark", [False, True])
def test_it_is_accessible_fits_every_window_and_names_stay_text(
    page: Page, serve: Callable[..., Served], audit: Path, dark: bool
) -> None:
    served = serve(audit)
    page.open(served.url, dark=dark)
    page.until(page.shows_image, "an image is shown")
    for width, height in ((1366, 768), (1024, 768), (820, 1180), (390, 844), (320, 600)):
        page.browser.look(width=width, height=height, dark=dark)
        assert page.browser.overflow() == 0, width
        assert page.browser.accessibility_faults() == []
    page.browser.look(width=1366, height=768, dark=dark)
    panel = page.driver.find_element("id", "panel")
    assert page.driver.execute_script("return arguments[0].scrollHeight <= arguments[0].clientHeight", panel)
    for key in ("c", "?"):
        page.press(key)
        page.until(lambda: page.driver.find_elements("css selector", "dialog[open]"), "a dialog is open")
        assert page.browser.accessibility_faults() == []
        page.press("\ue00c")
        page.until(lambda: not page.driver.find_elements("css selector", "dialog[open]"), "the dialog is closed")
    assert page.text("suggested") == TAG  # <img src=x onerror=alert(1)>
    page.decide("a", 1)
    assert page.driver.find_elements("css selector", "img[src='x'], img[onerror], b b") == []
    assert page.driver.execute_script("return document.querySelectorAll('script').length") == 1
    assert page.browser.console() == []


def test_damaged_and_missing_images_have_a_placeholder(page: Page, serve: Callable[..., Served], audit: Path) -> None:
    data = Path(AuditFolder(audit).audit["data"]["path"])
    first, second = Review(AuditFolder(audit)).samples[:2]
    (data / first.path).write_bytes(b"not an image")
    (data / second.path).unlink()
    page.open(serve(audit).url)
    page.until(lambda: f"damaged: {first.path}" in page.text("viewport"), "the damage is told")
    page.press("\ue014")
    page.until(lambda: "The image is missing" in page.text("viewport"), "the loss is told")
    page.decide("a", 1)
    page.until(page.shows_image, "the next image is shown")
    assert page.browser.console() == []


def test_zoom_follows_the_keys(page: Page, serve: Callable[..., Served], audit: Path) -> None:
    page.open(serve(audit).url)
    page.until(page.shows_image, "an image is shown")

    def width() -> int:
        return int(page.driver.find_element("css selector", "#viewport img").size["width"])

    whole = width()
    page.press("z")
    page.expect("zoom-level", "2×")
    assert abs(width() - 2 * whole) <= 2

    def scrolled() -> tuple[float, float]:
        """How far the view is scrolled to the right, and how far it can be."""
        script = "const v = document.getElementById('viewport'); return [v.scrollLeft, v.scrollWidth - v.clientWidth]"
        return tuple(page.driver.execute_script(script))

    at, end = scrolled()
    assert end > 100
    assert abs(at - end / 2) <= 2  # the middle stays in the middle
    page.dispatch(key="ArrowRight", shiftKey=True)
    assert scrolled()[0] > at
    page.press("z", "z", "z")
    page.expect("zoom-level", "fit")
    assert width() == whole


def test_two_tabs_and_two_processes_agree(page: Page, serve: Callable[..., Served], audit: Path) -> None:
    first, second = serve(audit), serve(audit)
    page.open(first.url)
    one = page.driver.current_window_handle
    page.driver.switch_to.new_window("tab")
    try:
        page.driver.get(second.url)
        page.expect("counted", "0 of 8 decided")
        two = page.driver.current_window_handle
        page.driver.switch_to.window(one)
        page.decide("a", 1)
        page.driver.switch_to.window(two)
        page.driver.execute_script("window.dispatchEvent(new Event('focus'))")
        page.expect("counted", "1 of 8 decided")
        page.press("\ue010")  # the last one
        page.expect("place", "Sample 8 of 8")
        page.decide("r", 2)
        page.driver.switch_to.window(one)
        page.press("u")  # the last decision, wherever it was made
        page.expect("counted", "1 of 8 decided")
        page.expect("place", "Sample 8 of 8")
        assert page.browser.console() == []
    finally:
        for handle in set(page.driver.window_handles) - {one}:
            page.driver.switch_to.window(handle)
            page.driver.close()
        page.driver.switch_to.window(one)
    folder = AuditFolder(audit)
    assert [len(read_decisions(folder.client_folder(c) / "decisions.jsonl").labels()) for c in (NORTH, EAST)] == [1, 0]


def test_a_held_key_decides_once_and_keys_can_be_switched_off(
    page: Page, serve: Callable[..., Served], audit: Path
) -> None:
    page.open(serve(audit).url)
    for _ in range(5):
        page.dispatch(key="a", code="KeyA", repeat=True)
    page.decide("a", 1)
    page.press("?")
    page.driver.find_element("id", "single-keys").click()
    page.driver.find_element("id", "keys-close").click()
    page.press("a", "r")
    page.driver.find_element("id", "reject").click()  # buttons go on working
    page.expect("counted", "2 of 8 decided")
    page.driver.refresh()
    page.expect("counted", "2 of 8 decided")
    page.press("a")
    page.press("?")  # a single key, too
    assert page.driver.find_elements("css selector", "dialog[open]") == []
    page.driver.find_element("id", "help").click()
    page.driver.find_element("id", "single-keys").click()
    page.press("\ue00c")
    page.decide("a", 3)
    assert page.browser.console() == []


def test_a_review_that_was_ended_says_that_nothing_is_saved(
    page: Page, serve: Callable[..., Served], audit: Path
) -> None:
    served = serve(audit)
    page.open(served.url)
    page.decide("a", 1)
    served.end()
    page.press("a")
    page.until(lambda: page.text("problem").startswith("Not saved: the review does not answer"), "the page says so")
    page.expect("counted", "1 of 8 decided")
    page.expect("place", "Sample 2 of 8")


def test_a_thousand_classes_and_no_images(page: Page, serve: Callable[..., Served], tmp_path: Path) -> None:
    folder = audit_of_features(tmp_path / "audit", samples())
    about = json.loads((folder / "audit.json").read_text())
    about["class_names"] += [f"species {i}" for i in range(996)] + ["Übergang <i>"]  # that no client has
    (folder / "audit.json").write_text(json.dumps(about))
    listed = Review(AuditFolder(folder)).samples
    page.open(serve(folder).url)
    n = len(listed)
    page.expect("place", f"Sample 1 of {n}")
    assert not page.driver.find_element("id", "stage").is_displayed()
    assert not page.driver.find_element("id", "strip").is_displayed()
    assert listed[0].id in page.text("about").split("\n")
    assert page.browser.accessibility_faults() == []
    assert page.browser.overflow() == 0
    page.press("1")  # digits choose only among few classes
    page.press("c", "uberg")
    page.until(lambda: page.text("found") == "Übergang <i>", "accents and case do not matter")
    page.press("\ue007")
    page.until(lambda: page.text("counted") == f"1 of {n} decided", "it is decided")
    page.press("c")
    page.until(lambda: page.text("found-count") == "and 900 more: type to find them", "not all are listed")
    assert page.browser.accessibility_faults() == []
    page.press("species 99", "\ue015", "\ue007")  # the second of those that begin so
    page.until(lambda: page.text("counted") == f"2 of {n} decided", "it is decided")
    assert [d.label for d in Review(AuditFolder(folder)).decided().values()] == ["Übergang <i>", "species 990"]
    assert page.browser.console() == []


def test_two_classes_need_two_keys(page: Page, serve: Callable[..., Served], tmp_path: Path) -> None:
    folder = audit_of_features(tmp_path / "audit", samples(classes=("ill", "well")))
    n = len(Review(AuditFolder(folder)).samples)
    page.open(serve(folder).url)
    page.press("c")  # there is no third class
    assert page.driver.find_elements("css selector", "dialog[open]") == []
    page.press("2")
    page.until(lambda: page.text("counted").startswith(f"1 of {n} decided"), "the second class is taken")
    assert [d.label for d in Review(AuditFolder(folder)).decided().values()] == ["well"]


def test_nothing_suspicious_is_said(page: Page, serve: Callable[..., Served], tmp_path: Path) -> None:
    folder = audit_of_features(tmp_path / "audit", samples(n_wrong=0))
    page.open(serve(folder).url)
    page.until(lambda: "Nothing is suspicious" in page.text("empty"), "the page says so")
    page.press("a", "u", "c", "n", "z", "\ue014")
    assert page.browser.accessibility_faults() == []
    assert page.browser.console() == []


def test_the_list_without_its_looks(page: Page, serve: Callable[..., Served], audit: Path) -> None:
    page.open(serve(audit).url)

    def call(expression: str) -> Any:
        script = "const done = arguments[0]; import('./list.js').then((list) => done(" + expression + "), done)"
        return page.driver.execute_async_script(script)

    assert call("[...list.digitKeys(['cat', 'dog'])]") == [["1", "cat"], ["2", "dog"]]
    assert call("[...list.digitKeys(['7', '0'])]") == [["7", "7"], ["0", "0"]]
    assert call("[...list.digitKeys('abcdefghij'.split(''))].at(-1)") == ["0", "j"]
    assert call("[...list.digitKeys('abcdefghijk'.split(''))]") == []
    names = "['wild cat', 'catfish', 'concatenate', 'Cat', 'dog']"
    assert call(f"list.findClasses({names}, ' cat', [])") == ["Cat", "catfish", "wild cat", "concatenate"]
    assert call(f"list.findClasses({names}, '', ['dog'])[0]") == "dog"
    shares = [0, 0.0000001, 0.034, 0.5, 0.999, 0.99999, 1]
    words = ["0.0 %", "less than 0.1 %", "3.4 %", "50 %", "99.9 %", "more than 99.9 %", "100.0 %"]
    assert [call(f"list.percent({share})") for share in shares] == words
    keys = {"key: 'a', code: 'KeyQ'": "a", "key: 'ф', code: 'KeyA'": "a", "key: '&', code: 'Digit1'": "1"}
    keys |= {"key: 'A', code: 'KeyA', shiftKey: true": "a", "key: '?', code: 'Slash', shiftKey: true": "?"}
    for event, key in keys.items():
        assert call(f"list.keyOf(new KeyboardEvent('keydown', {{{event}}}))") == key
    assert call("list.shown('a\\u202eb\\u200dc')") == "a\\u202eb\u200dc"
    decided = "new Map([[1, {}], [2, {}]])"
    assert call(f"list.nextUndecided([{{index: 0}}, {{index: 1}}, {{index: 2}}], {decided}, 0)") == 0
    assert call(f"list.nextUndecided([{{index: 1}}, {{index: 2}}], {decided}, 0)") == -1
    assert call("list.nextUndecided([], new Map(), -1)") == -1


def test_the_focus_stays_where_a_person_left_it(page: Page, serve: Callable[..., Served], audit: Path) -> None:
    page.open(serve(audit).url)
    page.driver.find_elements("css selector", "#strip button")[3].click()
    page.expect("place", "Sample 4 of 8")
    assert page.driver.switch_to.active_element.get_attribute("aria-current") == "true"
    button = page.driver.find_elements("css selector", "#classes button")[1]
    words = button.text
    button.click()
    page.until(lambda: page.text("counted").startswith("1 of 8"), "it is decided")
    assert page.driver.switch_to.active_element.text == words
    page.press("f")
    assert page.driver.switch_to.active_element.get_attribute("id") == "by-client"
    page.press("\ue00c")
    page.decide("a", 2)
