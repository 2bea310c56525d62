"""From a template and its data to one HTML file that holds everything it needs."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from fedsir import __version__
from fedsir.printable import printable
from fedsir.report import wording
from fedsir.report.drawing import Html, css_class, element, marker


@cache
def stylesheet() -> str:
    """Return the one stylesheet of all pages."""
    return (files("fedsir.report") / "assets" / "report.css").read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the one script of all report pages."""
    return (files("fedsir.report") / "assets" / "report.js").read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return what a content security policy calls an inline script or style by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_security_policy() -> str:
    """Return what a report may do: show its own style, script and inline pictures; nothing reaches a network."""
    return (
        f"default-src 'none'; img-src data:; style-src {hash_source(stylesheet())}; "
        f"script-src {hash_source(script())}; base-uri 'none'; form-action 'none'"
    )


def _shown(value: Any) -> Any:
    """Return what a template prints: text without characters that steer a reader (breaks, overrides of direction)."""
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def sign(verdict: str) -> Html:
    """Return a verdict's sign, to stand in a line of text; the word next to it says what it means."""
    return element("svg", marker(verdict, 7, 7, 5), viewBox="0 0 14 14", aria_hidden="true", class_="sign")


@cache
def environment() -> Environment:
    """Return the templates, which escape whatever they print."""
    made = Environment(
        loader=PackageLoader("fedsir.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        name: getattr(wording, name) for name in ("count", "percent", "points", "number", "size", "duration", "moment")
    }
    made.filters |= {"css_class": css_class, "sign": sign}
    made.globals |= {"plural": wording.plural, "is_known": wording.is_known}
    return made


def render(template: str, **values: Any) -> str:
    """Return a page."""
    page = environment().get_template(template)
    return page.render(
        style=Html(stylesheet()),
        script=Html(script()),
        policy=content_security_policy(),
        version=__version__,
        **values,
    )
