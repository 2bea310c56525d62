"""`fedsir flower audit`: the label audit over real sites, each of which gets its own list."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsir.cli import options
from fedsir.cli.audit import show_clients, show_next
from fedsir.cli.terminal import say, say_json, say_text
from fedsir.errors import FedsirError

RATES = ("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy")


def audit(
    app_folder: Annotated[Path, typer.Argument(help="Folder of the app, from `fedsir flower new`.")],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for the summary: new, or of an earlier audit.", show_default=False),
    ],
    federation: Annotated[
        str | None, typer.Argument(help="Federation in Flower's config; its default if not given.")
    ] = None,
    features: Annotated[
        str,
        typer.Option(
            help="What makes features of images at every site: resnet18 (ImageNet weights), or MODULE:CLASS; or given, "
            "for the array `features` of the sites' npz files."
        ),
    ] = "resnet18",
    image_size: Annotated[
        int, typer.Option(help="Side in pixels that images are brought to; 0: about theirs, 32 to 224.", min=0)
    ] = 0,
    min_cell: Annotated[int, typer.Option(help="Smallest count that sites tell.", min=5)] = 5,
    min_class_samples: Annotated[
        int, typer.Option(help="A class of which a site has fewer samples is in none of its sums.", min=1)
    ] = 1,
    min_sites: Annotated[
        int, typer.Option(help="Sites to wait for; 0: as many as the app's setting min-sites says.", min=0)
    ] = 0,
    wait: Annotated[float, typer.Option(help="Seconds to wait for sites.")] = 30.0,
    timeout: Annotated[
        float, typer.Option(help="Seconds for a site to answer; 0: what the app's setting timeout says.", min=0)
    ] = 0.0,
    download: Annotated[bool, typer.Option(help="Let sites fetch the network's weights if they have none.")] = False,
    as_json: options.Json = False,
) -> None:
    """Say which sites' labels look wrong, and give each site the list of its own. Nothing trains.

    Run it at the server. Samples stay where they are: sites send sums of features and counts. What a site finds about
    its samples is in its own folder, SITE/audit, for `fedsir audit review`, `apply` and `export` there.
    """
    from fedsir.auditing.folder_writer import refuse_foreign
    from fedsir.deployment.flwr_command import run_app

    refuse_foreign(out)  # before minutes of work
    settings: dict[str, Any] = {
        "audit-out": str(out.resolve()),
        "audit-features": features,
        "audit-image-size": image_size,
        "audit-min-cell": min_cell,
        "audit-min-class-samples": min_class_samples,
        "audit-download": download,
        "wait": wait,
    }
    settings |= {key: value for key, value in {"min-sites": min_sites, "timeout": timeout}.items() if value}
    found = run_app(app_folder, federation, settings)
    if as_json:
        say_json(found)
    if "error" in found:
        raise FedsirError(found["error"])
    if not as_json:
        _show(found, out)


def _show(found: dict[str, Any], out: Path) -> None:
    from fedsir.auditing.folder import SITES_FOLDER

    unknown = dict.fromkeys(RATES, math.nan)
    clients = [row | {name: unknown[name] for name in RATES if row[name] is None} for row in found["clients"]]
    show_clients(clients, out)
    for client, why in found["left_out"].items():
        say_text(f"left out {client}: {why}")
    if found["note"]:
        say_text(f"note: {found['note']}")
    say("")
    say_text(f"{found['headline']}.", bold=True)
    if found["suspicious_hidden"]:
        say("Sites with fewer suspicious labels than the smallest count they tell are not in that number.")
    say(f"The whole answer: {out / 'report.html'}. What comes next, at each site (SITE is its folder):")
    show_next(SITES_FOLDER)
