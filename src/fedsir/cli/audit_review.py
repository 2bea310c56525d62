"""`fedsir audit review`: look at suspicious labels one by one and decide."""

from __future__ import annotations

import os
import signal
import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsir.cli.terminal import say, say_json
from fedsir.errors import DataError

if TYPE_CHECKING:
    from fedsir.auditing.review.server import ReviewServer
    from fedsir.auditing.review.session import Review


def review(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder that `fedsir audit` wrote.", show_default=False)
    ],
    client: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this client's samples.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Where the audited data lie now. Default: where they lay.", show_default=False)
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port to listen on, of this machine only. Default: a free one.", show_default=False)
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address; open nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the address, and at the end the count, as JSON.")] = False,
) -> None:
    """Go through suspicious labels in the browser: accept, reject or correct, by keyboard.

    The page is for you alone: it is served on this machine only, under an address that nobody can guess. Every decision
    is saved at once. Close the page and come back whenever you like. Ctrl-C ends it.
    """
    from fedsir.auditing.folder import AuditFolder
    from fedsir.auditing.review.server import ReviewServer
    from fedsir.auditing.review.session import Review

    if data is not None and not data.exists():
        raise DataError(f"--data: there is no {data}.")
    opened = Review(AuditFolder(folder), client, data)
    with ReviewServer(opened, port) as server:
        _greet(server, is_json=json)
        if not no_browser and _has_screen():
            threading.Thread(target=webbrowser.open, args=(server.url,), daemon=True).start()
        _serve(server)
    _part(opened, is_json=json)


def _greet(server: ReviewServer, *, is_json: bool) -> None:
    review = server.review
    n, n_decided = len(review.samples), len(review.decided())
    if is_json:
        say_json({"url": server.url, "samples": n, "decided": n_decided})
        sys.stdout.flush()
        return
    for note in review.torn():
        say(f"note: {note}", err=True)
    if n == 0:
        say("Nothing is suspicious: there is nothing to decide.")
    else:
        say(f"{n:,} suspicious samples, {n_decided:,} of them decided.")
    say(f"Open {server.url}", bold=True)
    say("This address works on this machine only, until you end the review with Ctrl-C. Decisions are saved at once.")
    sys.stdout.flush()


def _has_screen() -> bool:
    """Whether a browser has somewhere to appear; without a screen, Python would start one in this terminal."""
    if sys.platform in ("win32", "darwin"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER"))


def _serve(server: ReviewServer) -> None:
    """Answer until Ctrl-C, or until the process is asked to end."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


def _part(review: Review, *, is_json: bool) -> None:
    from fedsir.auditing.review.server import next_command

    n, n_decided = len(review.samples), len(review.decided())
    if is_json:
        say_json({"samples": n, "decided": n_decided, "next": next_command(review)})
        return
    say("")  # below the ^C that the terminal shows
    if n_decided == 0:
        say(f"Nothing is decided yet: {n:,} suspicious samples." if n else "There was nothing to decide.")
    else:
        say(f"{n_decided:,} of {n:,} suspicious samples {'is' if n_decided == 1 else 'are'} decided, and saved.")
    if n_decided < n:
        say(f"Go on:  {next_command(review).replace('apply', 'review', 1)}")
    if n_decided:
        say(f"Next:   {next_command(review)}")
