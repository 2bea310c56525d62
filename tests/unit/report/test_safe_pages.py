"""Pages hold everything they need, let nothing in, and show hostile names as text."""

import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedsir.report.audit_page import audit_page, client_page
from fedsir.report.comparison_page import comparison_page
from fedsir.report.page import script, stylesheet
from fedsir.report.run_page import run_page
from fedsir.runs.result import RunResult
from report_views import HOSTILE, audit_view, client_view

Pages = Callable[[str], str]
SAFE_ADDRESS = re.compile(r"#[\w-]+|data:image/(png|jpeg);base64,[\w+/=]+|[\w./%-]+")


class Elements(HTMLParser):
    """Collects elements, attributes and text as a browser's parser would see them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_data(self, data: str) -> None:
        self.text += data


def elements(page: str) -> Elements:
    parsed = Elements()
    parsed.feed(page)
    return parsed


@pytest.fixture
def page(hostile: Path) -> Pages:
    def make(kind: str) -> str:
        if kind == "run":
            return run_page(hostile)
        if kind == "comparison":
            return comparison_page([hostile])
        return audit_page(audit_view(names=HOSTILE)) if kind == "audit" else client_page(client_view(names=HOSTILE))

    return make


KINDS = ("run", "comparison", "audit", "client")


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_text(kind: str, page: Pages) -> None:
    found = elements(page(kind))
    assert found.tags.count("script") == found.tags.count("style") == 1
    assert not {"iframe", "object", "embed", "link", "base", "form", "b", "i"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name in ("style", "srcdoc")]
    for name, value in found.attributes:
        if name in ("href", "src"):
            assert value is not None
            assert SAFE_ADDRESS.fullmatch(value), value
    # A comparison has no names of clients or classes; its run's folder is called "run <i>&".
    assert ("run <i>&" if kind == "comparison" else "<script>alert('x')</script>") in found.text


def test_what_steers_a_reader_is_an_escape(page: Pages) -> None:
    text = page("audit")
    assert "\u202e" not in text
    assert "\x1b" not in text
    assert "Klinik\\u202egpj" in text
    assert "{{ 7 * 7 }}" in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_allows_the_pages_own_script_alone(kind: str, page: Pages) -> None:
    text = page(kind)
    policy = next(value for name, value in elements(text).attributes if name == "content" and value and "-src" in value)
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy
    assert "http" not in policy
    for tag, whole in (("script", script()), ("style", stylesheet())):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
        assert inside == whole


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_unique_and_links_lead_somewhere(kind: str, page: Pages) -> None:
    found = elements(page(kind))
    assert len(found.ids) == len(set(found.ids))
    targets = {value[1:] for name, value in found.attributes if name == "href" and value and value.startswith("#")}
    assert targets <= set(found.ids)
    named = [v for name, v in found.attributes if name in ("aria-labelledby", "for") and v]
    assert {word for value in named for word in value.split()} <= set(found.ids)


def test_pages_are_the_same_each_time(made: RunResult) -> None:
    assert run_page(made.folder) == run_page(made.folder)


def test_a_thousand_clients_and_classes_stay_readable() -> None:
    text = audit_page(audit_view(1000, 1000))
    found = elements(text)
    assert len(text) < 1_500_000
    assert found.tags.count("li") < 150
    assert "And 940 more clients: 273 noisy, 1 not assessed, 666 clean." in found.text
    assert "The first 40 of 999 clients are drawn" in found.text
    assert "The 24 of 1,000 classes that are confused most are drawn." in found.text


def test_nothing_suspicious_is_a_page() -> None:
    text = client_page(client_view(0))
    assert "No label of this client looks wrong." in text


def test_features_have_no_pictures() -> None:
    text = client_page(client_view(3, has_pictures=False))
    assert "There are features, and no images." in text
    assert "<img" not in text
