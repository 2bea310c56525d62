"""`fedsir report`: one HTML file about a run, several runs, or an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsir.cli import options
from fedsir.cli.terminal import say, say_json
from fedsir.errors import ConfigError


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN... | AUDIT",
            help="A run's folder, several, a folder of run folders, or the folder of an audit.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The page. Default: report.html in the folder, or fedsir-report.html here if several are named.",
            show_default=False,
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Show the page in the browser.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Of several runs only those with this setting, as in --only data.noise_rate=0.3. Repeatable.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="METHOD", help="Method that several runs are compared with. Default: the first."),
    ] = None,
    no_images: Annotated[bool, typer.Option("--no-images", help="Show no samples; the data set is not read.")] = False,
    similarities: Annotated[
        bool,
        typer.Option(
            "--similarities",
            help="Show class similarities of the clients of a run: trains Stage I of up to 12 clients once more.",
        ),
    ] = False,
    data_dir: options.DataDir = None,
    as_json: options.Json = False,
) -> None:
    """Make one HTML file that says what happened: it needs no network and opens from a USB stick.

    Examples: `fedsir report runs/mine --open`, `fedsir report runs/a runs/b -o comparison.html`,
    `fedsir report my_audit`.
    """
    from fedsir.auditing.report import audit_page
    from fedsir.report.write import Written, write_report
    from fedsir.runs.config import flat, parse_assignment

    audits = [folder for folder in folders if (folder / "audit.json").is_file()]
    if audits and len(folders) > 1:
        raise ConfigError(f"{audits[0]} is an audit, which has a page of its own: name it alone.")
    left_out: tuple[Path, ...] = ()
    if audits:
        path, kind = audit_page(audits[0], out), "audit"
    else:
        chosen = {key: value for text in only or () for key, value in flat(parse_assignment(text, "--only"))}
        made: Written = write_report(
            folders,
            out,
            only=chosen,
            against=against,
            images=not no_images,
            similarities=similarities,
            data_dir=data_dir,
        )
        path, kind, left_out = made.path, made.kind, made.left_out
    for folder in left_out:
        say(f"fedsir: left out, not finished: {folder}", err=True)
    if open_page:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            say("fedsir: no browser was found; open the file yourself.", err=True)
    if as_json:
        say_json({"kind": kind, "file": str(path), "left_out": [str(folder) for folder in left_out]})
    else:
        say(str(path))
