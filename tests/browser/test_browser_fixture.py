"""The browser notices what the other tests count on: console errors, requests, faults, overflow."""

from pathlib import Path

FAULTY = """<!doctype html><html><title>x</title><body><img src="http://127.0.0.1:9/a.png">
<button></button><p style="width: 3000px">wide</p><script>undefined_name()</script>"""


def test_faults_are_noticed(browser, tmp_path: Path) -> None:
    page = tmp_path / "faulty <page>.html"
    page.write_text(FAULTY, encoding="utf-8")
    browser.open(page, width=400)
    assert any("undefined_name" in line for line in browser.console())
    assert browser.network_requests() == ["http://127.0.0.1:9/a.png"]
    assert browser.network_requests(allowed="http://127.0.0.1:9") == []
    assert any(fault.startswith("button-name") for fault in browser.accessibility_faults())
    assert browser.overflow() > 2000


def test_a_plain_page_is_clean(browser, tmp_path: Path) -> None:
    page = tmp_path / "plain.html"
    page.write_text("<!doctype html><html lang=en><title>x</title><main><h1>x</h1></main>", encoding="utf-8")
    browser.open(page, width=390, dark=True)
    assert browser.console() == []
    assert browser.network_requests() == []
    assert browser.accessibility_faults() == []
    assert browser.overflow() == 0
    assert browser.screenshot(tmp_path / "x.png").read_bytes()[:4] == b"\x89PNG"
    assert browser.pdf(tmp_path / "x.pdf").read_bytes()[:4] == b"%PDF"
