"""`fedsir flower`: apps and sites for federations on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fedsir.cli import flower_audit, options
from fedsir.cli.plain_help import PlainGroup
from fedsir.cli.terminal import say, say_json
from fedsir.errors import FedsirError

app = typer.Typer(
    cls=PlainGroup,
    help="Apps and sites for federations on Flower: simulated, or real ones with their own data.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("new")
def new(
    folder: Annotated[Path, typer.Argument(help="Folder to write the app into; it must not exist yet.")],
    recipe: Annotated[str | None, typer.Option(help="Recipe that settings come from, as for `fedsir run`.")] = None,
    method: options.MethodName = None,
    dataset: options.Dataset = None,
    rounds: options.Rounds = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
    as_json: options.Json = False,
) -> None:
    """Write a Flower app that `flwr run` takes, with every setting in its pyproject.toml.

    The data set is for the app's simulation; real sites bring their own. A method of your own is copied into the app.
    """
    from fedsir.deployment.new_app import write_app
    from fedsir.engines.flower.offline import check_installed

    check_installed("flwr")
    config = options.settings(recipe, method, dataset, None, None, rounds, seed, assignments, None, False)
    written = write_app(folder, config)
    if as_json:
        say_json({"app": str(written.resolve()), "method": config.method.name})
        return
    say(f"{written} is a Flower app for {config.method.name}. In it:")
    say("  flwr run . local-simulation --stream")


@app.command("site")
def site(
    data: Annotated[Path, typer.Option(help="The site's npz file, or folder client/class/image.")],
    client_id: Annotated[str, typer.Option(help="The site's name in the federation; no two sites may share one.")],
    out: Annotated[Path, typer.Option(help="Folder of the site: its config, its key, what it remembers.")],
    superlink: Annotated[str, typer.Option(help="Host and port of the server's SuperLink.")] = "127.0.0.1:8000",
    ca: Annotated[
        Path | None, typer.Option(help="Certificate that the server's is checked with; without it, no encryption.")
    ] = None,
    image_size: Annotated[int, typer.Option(help="Side in pixels that images are brought to; 0 keeps theirs.")] = 0,
    public: Annotated[
        Path | None,
        typer.Option(help="Copy of the unlabelled images that everybody has: npz file or folder. For rhfl and fedned."),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on this machine for the site's own processes; 0 for a free one.")] = 0,
    as_json: options.Json = False,
) -> None:
    """Check a site's data, and write its config, key and start command. Nothing leaves the machine."""
    from fedsir.deployment.site_folder import write_site
    from fedsir.engines.flower.offline import check_installed

    check_installed("flwr")
    found = write_site(
        out, client_id, data, image_size=image_size, public=public, superlink=superlink, ca=ca, port=port
    )
    if as_json:
        say_json(found)
        return
    say(f"{client_id}: {found['n_train']} images to train on, {found['n_held_out']} held out, {_form(found)}")
    say(f"classes: {', '.join(found['class_names'])}")
    if ca is None:
        say("note: without --ca this site connects unencrypted and unauthenticated; for one machine only")
    else:
        say(f"register at the server: flwr supernode register {found['public_key']} FEDERATION")
    say(f"start: {found['start']}")


@app.command("check")
def check(
    app_folder: Annotated[Path, typer.Argument(help="Folder of the app, from `fedsir flower new`.")],
    federation: Annotated[
        str | None, typer.Argument(help="Federation in Flower's config; its default if not given.")
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for sites.")] = 30.0,
    as_json: options.Json = False,
) -> None:
    """Say which sites are connected, what data they have, and what does not fit. Nothing trains.

    Leaves with code 2 if something does not fit.
    """
    from fedsir.deployment.flwr_command import run_app

    report = run_app(app_folder, federation, {"check": True, "wait": wait})
    if as_json:
        say_json(report)
    else:
        _show(report)
    if "error" in report:
        raise FedsirError(report["error"])
    if report["problems"]:
        raise FedsirError(f"{len(report['problems'])} of these do not fit: {report['problems'][0]}")


app.command("audit")(flower_audit.audit)


def _form(about: dict[str, Any]) -> str:
    size = "×".join(str(side) for side in about["image_size"])
    return f"{size} {'colour' if about['channels'] == 3 else 'grey'}"


def _show(report: dict[str, Any]) -> None:
    for client, about in report.get("sites", {}).items():
        say(
            f"{client}: fedsir {about['version']}, {about['n_train']} images to train on, "
            f"{about['n_held_out']} held out, {'' if about['problem'] else f'{_form(about)}, '}"
            f"classes {', '.join(about['class_names'] or [])}"
        )
    if report.get("agreement"):
        say(f"together: classes {', '.join(report['agreement']['class_names'])}")
    for problem in report.get("problems", []):
        say(f"does not fit: {problem}")
