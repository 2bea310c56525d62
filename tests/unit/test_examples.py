"""The examples run and find what they promise; the settings' tables and links in the docs are complete."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fedsir.data.config import DataConfig
from fedsir.methods.baseline_settings import (
    FedCorrConfig,
    FedELCConfig,
    FedLSRConfig,
    FedNedConfig,
    FedNoRoConfig,
    FedProxConfig,
    RHFLConfig,
    RoFLConfig,
)
from fedsir.methods.fedsir_settings import PAPER, FedSIRConfig, SpectralConfig
from fedsir.methods.settings import MethodConfig
from fedsir.models.config import ModelConfig
from fedsir.runs.config import RunConfig

ROOT = Path(__file__).resolve().parents[2]


def run_example(name: str, folder: Path) -> list[str]:
    """Run an example from an empty folder and return the lines it prints."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == [], "an example leaves nothing behind"
    return done.stdout.splitlines()


def test_three_stages_by_hand(tmp_path: Path) -> None:
    lines = run_example("01_three_stages.py", tmp_path)
    assert "Stage I    noisy clients: paul, quinn, rosa" in lines
    noise = {m[1]: (int(m[2]), int(m[3])) for line in lines if (m := re.search(r"II +(\w+) .* (\d+)% .* (\d+)%", line))}
    assert noise.keys() == {"paul", "quinn", "rosa"}
    assert all(before > 50 and after < 20 for before, after in noise.values()), noise
    shares = {m[1]: float(m[2]) for line in lines if (m := re.search(r"III +(\w+) +weight ([\d.]+)%", line))}
    assert sum(shares.values()) == pytest.approx(100, abs=0.5)
    assert min(shares[k] for k in ("mary", "nils", "otto")) > max(shares[k] for k in noise)


def test_own_data_names_the_bad_site(tmp_path: Path) -> None:
    lines = run_example("02_own_data.py", tmp_path)
    assert lines[-1] == "noisy: cadiz"
    verdicts = {line.split()[0]: line.split()[1] for line in lines[:4]}
    assert verdicts == {"aachen": "clean", "bergen": "clean", "cadiz": "noisy", "dublin": "clean"}
    changed = {line.split()[0]: int(line.split()[-1].removesuffix("%")) for line in lines[:4]}
    assert changed["cadiz"] > 70
    assert changed["aachen"] == changed["bergen"] == changed["dublin"] == 0
    header, *listed = [line.strip().split(",") for line in lines[5:9]]
    assert header == ["sample", "client", "given", "suggested", "score"]
    assert all(client == "cadiz" and given != suggested for _, client, given, suggested, _ in listed)


def test_arrays_in_verdict_and_labels_out(tmp_path: Path) -> None:
    code = (ROOT / "examples" / "04_notebook_style.py").read_text(encoding="utf-8").split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip() and not line.strip().startswith("#")]) < 15
    lines = run_example("04_notebook_style.py", tmp_path)
    verdicts = {words[0]: words[1] for words in (line.split() for line in lines[1:7])}
    assert {site for site, verdict in verdicts.items() if verdict == "noisy"} == {"Cadiz", "Fermo"}
    before, after = (int(line.split(": ")[1].split("%")[0]) for line in lines[-2:])
    assert before > 55 and after < 15


def test_a_simulation_stops_early_and_predicts(tmp_path: Path) -> None:
    lines = run_example("05_step_by_step.py", tmp_path)
    accuracies = [float(m[1]) for line in lines if (m := re.match(r"round +\d+  accuracy ([\d.]+)%", line))]
    assert accuracies[-1] > 96 and max(accuracies[:-1]) <= 96
    assert f"stopped after {len(accuracies) - 1} rounds" in "\n".join(lines)
    assert lines[-1] == f"test accuracy {accuracies[-1]:.1f}% with SmallCNN"


def test_own_method_runs_beside_a_built_in_one(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "03_own_method.py").read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]) < 40
    scores = {
        name: float(value)
        for name, value in (x.split(": accuracy ") for x in run_example("03_own_method.py", tmp_path))
    }
    assert scores.keys() == {"fedavg", "easy-half"}
    assert min(scores.values()) > 0.2  # ten classes: chance is 0.1


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, default) of every setting that is not a group of settings."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, "open" if field.default is None else field.default


def table_of(page: str) -> dict[str, list[str]]:
    """Return key → cells for the rows of a page's tables that begin with a key in backquotes."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {cells[0].strip("`"): cells[1:] for cells in rows if cells[0].startswith("`")}


@pytest.mark.parametrize(
    ("page", "model", "prefix", "skipped"),
    [
        ("methods/fedsir.md", FedSIRConfig, "method.", ("method.name",)),
        ("methods/fedavg.md", MethodConfig, "method.", ("method.name",)),
        ("methods/fedprox.md", FedProxConfig, "method.", ("method.name",)),
        ("methods/fedelc.md", FedELCConfig, "method.", ("method.name",)),
        ("methods/fednoro.md", FedNoRoConfig, "method.", ("method.name",)),
        ("methods/pruning.md", SpectralConfig, "method.", ("method.name",)),
        ("methods/rofl.md", RoFLConfig, "method.", ("method.name",)),
        ("methods/fedlsr.md", FedLSRConfig, "method.", ("method.name",)),
        ("methods/rhfl.md", RHFLConfig, "method.", ("method.name",)),
        ("methods/fedned.md", FedNedConfig, "method.", ("method.name",)),
        ("methods/fedcorr.md", FedCorrConfig, "method.", ("method.name",)),
        ("own-data.md", DataConfig, "data.", ()),
        ("own-data.md", ModelConfig, "model.", ()),
        ("command-line.md", RunConfig, "", ("data.", "model.", "method.")),
    ],
)
def test_tables_list_every_setting_with_its_default(
    page: str, model: type[BaseModel], prefix: str, skipped: tuple[str, ...]
) -> None:
    table = table_of(page)
    settings = {key: default for key, default in leaves(model, prefix) if not key.startswith(skipped or "\0")}
    assert settings.keys() <= table.keys(), settings.keys() - table.keys()
    for key, default in settings.items():
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        assert shown in [cell.strip("`") for cell in table[key]], f"{page}: {key} has the default {shown}"
    stale = {key for key in table if prefix and key.startswith(prefix)} - settings.keys()
    assert not stale, f"{page} lists settings that do not exist: {stale}"


def test_deviations_list_both_presets() -> None:
    table = table_of("deviations.md")
    defaults = dict(leaves(FedSIRConfig, "method."))
    for group, values in PAPER.items():
        for name, paper in values.items():
            key = f"method.{group}.{name}"
            authors = defaults[key]
            assert [f"`{authors}`", f"`{paper}`"] == table[key][:2], key


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    for file, _, anchor in (link.partition("#") for link in links if "://" not in link):
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {file}"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {file}#{anchor}"
