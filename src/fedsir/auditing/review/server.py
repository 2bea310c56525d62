"""The review page over HTTP, for one person on this machine.

Only 127.0.0.1 is listened on. Every address begins with a random token, so that other users of the machine and other
pages in the browser find nothing. The Host header must name this machine, or a foreign name that was made to point
here (DNS rebinding) could read the page. Nothing that a request says becomes a path: samples go by their number in the
review.
"""

from __future__ import annotations

import errno
import hmac
import json
import secrets
import shlex
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from fedsir.auditing.review.images import LONGEST_SIDE, THUMBNAIL_SIDE, NoPicture, encoded
from fedsir.auditing.review.session import RequestError, Review
from fedsir.errors import ConfigError, FedsirError
from fedsir.report.page import stylesheet

ADDRESS = "127.0.0.1"
HOSTS = frozenset((ADDRESS, "localhost"))  # with any port: it may be forwarded from another machine
LARGEST_BODY = 4096  # bytes; a decision takes about a hundred
PAGE_FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "review.css": ("review.css", "text/css; charset=utf-8"),
    "review.js": ("review.js", "text/javascript; charset=utf-8"),
    "list.js": ("list.js", "text/javascript; charset=utf-8"),
    "picture.js": ("picture.js", "text/javascript; charset=utf-8"),
    "picker.js": ("picker.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
SECURITY = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",  # images may be patients'
}


class ReviewServer(ThreadingHTTPServer):
    """A review that listens; `url` is the address to open."""

    daemon_threads = True
    allow_reuse_address = sys.platform != "win32"  # there it would let two servers share a port

    def __init__(self, review: Review, port: int = 0) -> None:
        self.review = review
        self.token = secrets.token_urlsafe(24)
        if not 0 <= port <= 65535:
            raise ConfigError(f"--port must lie between 0 and 65535 (given: {port}).")
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                raise ConfigError(f"Port {port} is taken: choose another --port, or none to get a free one.") from None
            raise ConfigError(
                f"Port {port} cannot be listened on: {problem.strerror}. Choose another --port."
            ) from None

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_address[1]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing where the browser has gone; anything else is a bug and shows its traceback."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Refused(Exception):
    """A request that is not answered."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that an idle connection is kept
    server: ReviewServer

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _refuse_method(self) -> None:
        self.close_connection = True  # whatever follows the headers is not read
        self._send(
            HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"Only GET and POST.\n", Allow="GET, POST"
        )

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse_method

    def _answer(self, answer: Any) -> None:
        try:
            self._refuse_strangers()
            answer(self._route())
        except _Refused as refused:
            self.close_connection = True
            self._send_json({"problem": refused.reason}, refused.status)
        except RequestError as problem:
            self._send_json({"problem": str(problem)}, HTTPStatus.BAD_REQUEST)
        except FedsirError as problem:  # a decision that cannot be saved, a journal that cannot be read
            self._send_json({"problem": str(problem)}, HTTPStatus.INTERNAL_SERVER_ERROR)

    # ------------------------------------------------------------------ who may ask

    def _refuse_strangers(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or _name_of(hosts[0]) not in HOSTS:
            raise _Refused(HTTPStatus.FORBIDDEN, "This page answers under 127.0.0.1 and localhost only.")
        origin = self.headers.get("Origin")
        if origin is not None and origin != f"http://{hosts[0]}":
            raise _Refused(HTTPStatus.FORBIDDEN, "Another page asked; only this one may.")

    def _route(self) -> str:
        """Return what lies behind the token in the address."""
        token, slash, route = urlsplit(self.path).path.removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            reason = "This is not the address that `fedsir audit review` printed: open that one, it changes every time."
            raise _Refused(HTTPStatus.FORBIDDEN, reason)
        if not slash:
            raise _Refused(HTTPStatus.NOT_FOUND, "The address ends with a slash.")
        return route

    # ------------------------------------------------------------------ what is asked

    def _get(self, route: str) -> None:
        kind, _, number = route.partition("/")
        if route in PAGE_FILES:
            name, media_type = PAGE_FILES[route]
            self._send(HTTPStatus.OK, media_type, (files(__package__) / "page" / name).read_bytes())
        elif route == "report.css":
            self._send(HTTPStatus.OK, "text/css; charset=utf-8", stylesheet().encode())
        elif route == "samples":
            self._send_json(_samples(self.server.review))
        elif route == "decisions":
            self._send_json(_decisions(self.server.review))
        elif kind in ("image", "thumbnail") and len(number) < 12 and number.isascii() and number.isdecimal():
            self._send_picture(int(number), LONGEST_SIDE if kind == "image" else THUMBNAIL_SIDE)
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _post(self, route: str) -> None:
        body = self._body()
        review = self.server.review
        if route == "decide":
            place = body.get("sample")
            decision = review.decide(place, body.get("action"), body.get("label"))
            self._send_json({"sample": place, "action": decision.action, "label": decision.label})
        elif route == "undo":
            undone = review.undo()
            if undone is None:
                self._send_json({"sample": None})
            else:
                place, decision = undone
                self._send_json({"sample": place, "action": decision.action, "label": decision.label})
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or "Transfer-Encoding" in self.headers:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "The request does not say how long it is.")
        if int(length[:12]) > LARGEST_BODY:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"A request has at most {LARGEST_BODY} bytes.")
        if self.headers.get_content_type() != "application/json":  # a form on another page cannot send this type
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The request is not JSON.")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "The request is not a JSON object.")
        return body

    # ------------------------------------------------------------------ answers

    def _send_picture(self, place: int, longest: int) -> None:
        review = self.server.review
        review.sample(place)
        try:
            media_type, content = encoded(review.images, place, longest)
        except NoPicture as problem:  # not an error of the request: the page shows the reason in its place
            self._send_json({"problem": str(problem)})
        else:
            self._send(HTTPStatus.OK, media_type, content)

    def _send_json(self, value: Any, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._send(status, "application/json", json.dumps(value, allow_nan=False).encode())

    def _send(self, status: HTTPStatus, media_type: str, content: bytes, **headers: str) -> None:
        self.send_response(status)
        fields = {"Content-Type": media_type, "Content-Length": str(len(content)), **SECURITY, **headers}
        if self.close_connection:
            fields["Connection"] = "close"
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not HTTP as it should be."""
        del explain
        self.close_connection = True
        self._send(HTTPStatus(code), "text/plain; charset=utf-8", f"{message or HTTPStatus(code).phrase}\n".encode())

    def version_string(self) -> str:
        """Name no versions."""
        return "fedsir"

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log: it would hold the token."""


def _name_of(host: str) -> str:
    name, _, port = host.partition(":")
    return name.lower() if port == "" or (port.isascii() and port.isdecimal()) else ""


def next_command(review: Review) -> str:
    """Return the command that makes labels of the decisions."""
    only = "" if review.client is None else f" --client {shlex.quote(review.client)}"
    return f"fedsir audit apply {shlex.quote(str(review.folder.path))}{only}"


def _samples(review: Review) -> dict[str, Any]:
    """Return everything that the page shows but does not change, classes and clients by number."""
    # A label may be missing in class_names after an edit by hand; the page must show it all the same.
    labels = [label for sample in review.samples for label in (sample.given, sample.suggested)]
    classes = list(dict.fromkeys([*review.class_names, *labels]))
    class_number = {name: i for i, name in enumerate(classes)}
    client_number = {name: i for i, name in enumerate(review.clients)}
    return {
        "data": str((review.folder.audit.get("data") or {}).get("path") or ""),
        "folder": str(review.folder.path),
        "next": next_command(review),
        "classes": review.class_names,
        "labels": classes,
        "clients": review.clients,
        "has_images": review.images.has_any,
        "notes": [*review.torn(), *_unlisted(review)],
        "samples": [
            [
                client_number[sample.client],
                sample.id,
                sample.path,
                class_number[sample.given],
                class_number[sample.suggested],
                sample.score,
                sample.probability,
            ]
            for sample in review.samples
        ],
    }


def _unlisted(review: Review) -> list[str]:
    n = review.n_unlisted()
    if n == 0:
        return []
    return [
        f"{n:,} earlier decision{'s are' if n > 1 else ' is'} about samples that this audit does not call suspicious."
    ]


def _decisions(review: Review) -> dict[str, Any]:
    decided = review.decided()
    last = max(decided, key=lambda i: decided[i].time) if decided else None
    return {"decided": [[i, decision.action, decision.label] for i, decision in decided.items()], "last": last}
