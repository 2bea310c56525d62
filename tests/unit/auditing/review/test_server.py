"""The review page over HTTP: who is let in, what is answered, and that nothing else of the disk can be asked for."""

import http.client
import io
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from audited import CLASSES, audit_of_features, audit_of_folder, samples
from fedsir.auditing.folder import AuditFolder
from fedsir.auditing.review.server import ReviewServer
from fedsir.auditing.review.session import Review
from fedsir.errors import ConfigError


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


Ask = Callable[..., Reply]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit of image files, made once: nobody changes this one."""
    root = tmp_path_factory.mktemp("audited")
    return audit_of_folder(root / "audit", root / "data", samples())


@pytest.fixture
def server(made: Path, tmp_path: Path) -> Iterator[ReviewServer]:
    folder = AuditFolder(shutil.copytree(made, tmp_path / "audit"))
    with ReviewServer(Review(folder)) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def ask(server: ReviewServer) -> Ask:
    """Return a function that asks for a route behind the token, or for a whole path."""

    def send(
        method: str, route: str, body: Any = None, *, path: str | None = None, headers: dict[str, str] | None = None
    ) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        given = ({} if body is None else {"Content-Type": "application/json"}) | (headers or {})
        try:
            connection.request(method, path or f"/{server.token}/{route}", content, given)
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    return send


def test_the_page_and_its_files_are_served_with_a_strict_policy(server: ReviewServer, ask: Ask) -> None:
    for route in ("", "report.css", "review.css", "review.js", "list.js", "picture.js", "picker.js", "icon.svg"):
        reply = ask("GET", route)
        assert reply.status == 200, route
        assert "default-src 'none'" in str(reply.headers["Content-Security-Policy"])
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Referrer-Policy"] == "no-referrer"
        assert reply.headers["Cache-Control"] == "no-store"
        assert b"http://" not in reply.content.replace(b"http://www.w3.org/2000/svg", b"")
        assert b"https://" not in reply.content
    assert server.url.startswith("http://127.0.0.1:")
    assert len(server.token) >= 32


def test_two_reviews_have_two_tokens(server: ReviewServer) -> None:
    with ReviewServer(server.review) as other:
        assert other.token != server.token


@pytest.mark.parametrize("path", ["/", "/samples", "/x/samples", "/%2e%2e/samples", "//samples", "/favicon.ico", "*"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_token_nothing_is_answered(ask: Ask, method: str, path: str) -> None:
    reply = ask(method, "", b"{}" if method == "POST" else None, path=path)
    assert reply.status == 403
    assert "fedsir audit review" in reply.json["problem"]


def test_the_token_must_be_whole_and_come_first(server: ReviewServer, ask: Ask) -> None:
    for path in (f"/{server.token[:-1]}/samples", f"/{server.token}x/samples", f"/samples?{server.token}"):
        assert ask("GET", "", path=path).status == 403
    assert ask("GET", "", path=f"/{server.token}").status == 404
    assert ask("GET", "", headers={"Cookie": server.token}, path="/samples").status == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0", "", "a:b:c"],
)
def test_a_foreign_name_for_this_machine_is_refused(ask: Ask, host: str) -> None:
    for method, route in (("GET", "samples"), ("GET", ""), ("POST", "undo")):
        assert ask(method, route, b"{}" if method == "POST" else None, headers={"Host": host}).status == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:8000", "127.0.0.1:1"])
def test_this_machine_may_be_called_by_its_names_at_a_forwarded_port(ask: Ask, host: str) -> None:
    assert ask("GET", "samples", headers={"Host": host}).status == 200


def test_two_hosts_or_none_are_refused(server: ReviewServer) -> None:
    for hosts in (b"", b"Host: 127.0.0.1\r\nHost: evil.example\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=20) as raw:
            raw.sendall(b"GET /" + server.token.encode() + b"/samples HTTP/1.1\r\n" + hosts + b"\r\n")
            assert b" 403 " in raw.recv(100)


def test_another_page_may_not_ask(server: ReviewServer, ask: Ask) -> None:
    own = f"http://127.0.0.1:{server.server_address[1]}"
    assert ask("POST", "undo", {}, headers={"Origin": own}).status == 200
    for origin in ("null", "https://evil.example", "http://127.0.0.1:1", f"{own}.evil.example"):
        assert ask("POST", "undo", {}, headers={"Origin": origin}).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"])
def test_other_methods_are_refused(ask: Ask, method: str) -> None:
    reply = ask(method, "samples")
    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, POST"
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_methods_fit_their_routes(ask: Ask) -> None:
    assert ask("GET", "decide").status == 404
    assert ask("GET", "undo").status == 404
    assert ask("POST", "samples", {}).status == 404
    assert ask("BREW", "samples").status == 501


@pytest.mark.parametrize(
    "route",
    [
        "../audit.json",
        "image/../../audit.json",
        "image/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "image//etc/passwd",
        "image/-1",
        "image/1.0",
        "image/٣",
        "image/0/..",
        "page/page.html",
        "server.py",
        "review.js/",
        "image/" + "0" * 40,
    ],
)
def test_nothing_else_of_the_disk_can_be_asked_for(ask: Ask, route: str) -> None:
    quoted = route.encode().decode("latin-1") if route.isascii() else "image/%D9%A3"
    reply = ask("GET", quoted)
    assert reply.status == 404
    assert reply.headers.get_content_type() == "application/json"


def test_samples_outside_the_review_have_no_picture(ask: Ask) -> None:
    assert ask("GET", "image/8").status == 400
    assert ask("GET", "thumbnail/99999999").status == 400


def test_pictures_come_as_images_and_their_absence_in_words(server: ReviewServer, ask: Ask, tmp_path: Path) -> None:
    reply = ask("GET", "image/0")
    assert reply.headers["Content-Type"] == "image/png"
    data = Path(server.review.folder.audit["data"]["path"])
    assert Image.open(data / server.review.samples[0].path).size == Image.open(io.BytesIO(reply.content)).size
    server.review.images._root = tmp_path / "moved"  # type: ignore[attr-defined]
    for kind in ("image", "thumbnail"):
        gone = ask("GET", f"{kind}/0")
        assert gone.status == 200
        assert gone.json["problem"].startswith("The image is missing")


def test_a_path_in_the_tables_that_leads_elsewhere_is_not_followed(ask: Ask, server: ReviewServer) -> None:
    server.review.images._paths[0] = "../audit/audit.json"  # type: ignore[attr-defined]
    assert "does not lie in the data's folder" in ask("GET", "image/0").json["problem"]


def test_decide_undo_and_read_back(server: ReviewServer, ask: Ask) -> None:
    listed = ask("GET", "samples").json
    assert listed["classes"] == list(server.review.class_names)
    assert len(listed["samples"]) == 8
    assert listed["has_images"]
    assert listed["next"].startswith("fedsir audit apply ")
    suggested = listed["labels"][listed["samples"][3][4]]
    assert ask("POST", "decide", {"sample": 3, "action": "accept"}).json == {
        "sample": 3,
        "action": "accept",
        "label": suggested,
    }
    assert ask("GET", "decisions").json == {"decided": [[3, "accept", suggested]], "last": 3}
    assert ask("POST", "undo", {}).json == {"sample": 3, "action": "accept", "label": suggested}
    assert ask("POST", "undo", {}).json == {"sample": None}
    assert ask("GET", "decisions").json == {"decided": [], "last": None}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sample": 8, "action": "accept"},
        {"sample": "0", "action": "accept"},
        {"sample": True, "action": "accept"},
        {"sample": 0},
        {"sample": 0, "action": "undo"},
        {"sample": 0, "action": "correct"},
        {"sample": 0, "action": "correct", "label": "lynx"},
        {"sample": 0, "action": "correct", "label": ["cat"]},
        {"sample": {"a": 1}, "action": []},
    ],
)
def test_what_is_unknown_is_refused_and_not_saved(server: ReviewServer, ask: Ask, body: dict[str, Any]) -> None:
    reply = ask("POST", "decide", body)
    assert reply.status == 400
    assert reply.json["problem"].startswith("There is no ")
    assert server.review.decided() == {}


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 4000, b"null", b'"x"'])
def test_a_body_that_is_no_object_is_refused(ask: Ask, body: bytes) -> None:
    assert ask("POST", "decide", body).status == 400


def test_a_body_of_another_type_size_or_unknown_length_is_refused(server: ReviewServer, ask: Ask) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert ask("POST", "undo", b"{}", headers=form).status == 415
    assert ask("POST", "undo", b" " * 5000).status == 413
    assert ask("POST", "undo", b"{}", headers={"Content-Length": "9" * 30}).status == 413
    assert ask("POST", "undo", b"{}", headers={"Content-Length": "-1"}).status == 411
    assert ask("POST", "undo", b"2\r\n{}\r\n0\r\n\r\n", headers={"Transfer-Encoding": "chunked"}).status == 411
    assert server.review.decided() == {}


def test_a_decision_that_cannot_be_saved_is_told(server: ReviewServer, ask: Ask) -> None:
    sample = server.review.samples[0]
    (server.review.folder.client_folder(sample.client) / "decisions.jsonl").mkdir()
    reply = ask("POST", "decide", {"sample": 0, "action": "accept"})
    assert reply.status == 500
    assert "decisions.jsonl is not a file" in reply.json["problem"]


def test_many_at_once_lose_nothing(server: ReviewServer, ask: Ask) -> None:
    def decide(place: int) -> None:
        for action in ("accept", "reject") * 5:
            assert ask("POST", "decide", {"sample": place, "action": action}).status == 200

    threads = [threading.Thread(target=decide, args=(place,)) for place in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [decision.action for _, decision in sorted(server.review.decided().items())] == ["reject"] * 8
    again = Review(server.review.folder)
    assert again.decided() == server.review.decided()
    assert again.torn() == []


def test_an_audit_of_features_says_that_there_are_no_images(tmp_path: Path) -> None:
    review = Review(AuditFolder(audit_of_features(tmp_path / "audit", samples())))
    from fedsir.auditing.review.server import _samples

    listed = _samples(review)
    assert not listed["has_images"]
    assert set(listed["labels"]) == set(CLASSES)


def test_a_taken_or_impossible_port_is_one_clear_line(server: ReviewServer) -> None:
    with pytest.raises(ConfigError, match="is taken: choose another --port"):
        ReviewServer(server.review, server.server_address[1])
    with pytest.raises(ConfigError, match="between 0 and 65535"):
        ReviewServer(server.review, 70000)


def test_only_this_machine_is_listened_on(server: ReviewServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
