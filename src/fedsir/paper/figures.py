"""The paper's figures, drawn from what was measured: class similarities, and noise reduction by relabel rule."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from fedsir.errors import ConfigError
from fedsir.paper.results import Filled
from fedsir.paper.scales import Scale
from fedsir.paper.similarity import PAPER_RATES, Similarity, similarity_panels
from fedsir.runs.config import RunConfig, merge
from fedsir.runs.recipes import resolve
from fedsir.runs.run_folder import RunFolder, usable_folder


def similarity_config(scale: Scale, alpha: float, seed: int) -> RunConfig:
    """Return the settings behind the figure of class similarities."""
    tree = {"seed": seed, "method": {"name": "fedsir"}, "data": {"alpha": alpha}}
    return resolve(scale.recipes["cifar10"], merge(scale.settings, tree))


def similarity(
    config: RunConfig,
    scale: Scale,
    out: Path,
    *,
    noise_rates: Sequence[float] | None = None,
    no_run: bool = False,
    device: str = "cpu",
    data_dir: Path | None = None,
    download: bool = False,
) -> tuple[Similarity, list[Path]]:
    """Return the class similarities, computed unless a file has them, and the files that show them."""
    from fedsir.paper.charts import similarity_matrices

    stem, folder = f"figure-similarity-{scale.name}", RunFolder(usable_folder(out))
    rates = tuple(noise_rates or PAPER_RATES)
    path = out / f"{stem}.npz"
    found = Similarity.load(path) if path.exists() else None
    if found is None or found.noise_rates != rates or not found.is_of(config):
        if no_run:
            raise ConfigError(f"{path} is not there, or was made with other settings: leave out --no-run.")
        found = similarity_panels(config, rates, device=device, data_dir=data_dir, download=download)
        folder.write(path.name, found.to_bytes())
    panels = [(_label(rate), matrix) for rate, matrix in zip(found.noise_rates, found.matrices, strict=True)]
    folder.write(f"{stem}.svg", similarity_matrices(panels, found.class_names))
    folder.write(f"{stem}.csv", _similarity_csv(found).encode())
    return found, [path, out / f"{stem}.svg", out / f"{stem}.csv"]


def noise_reduction(filled: Filled, out: Path) -> list[Path]:
    """Write a figure per α from the runs of the relabel-rule table, and the numbers behind them; return the files.

    The reduction is that of the noisy clients' label noise from the first round to the last.
    """
    from fedsir.paper.charts import noise_reduction as chart

    stem, folder = f"figure-noise-reduction-{filled.scale.name}", RunFolder(out)
    rows: list[tuple[object, ...]] = [("rule", "alpha", "noise_rate", "seed", "noise_before", "noise_after")]
    written = []
    for alpha in dict.fromkeys(block.condition.alpha for block in filled.blocks):
        blocks = {
            rate: block
            for block in filled.blocks
            if block.condition.alpha == alpha and isinstance(rate := block.condition.noise_rate, float)
        }
        reductions: dict[str, list[list[float] | None]] = {}
        for rate, block in blocks.items():
            for line in block.lines:
                noise = [(run.seed, run["noise_before"], run["noise_after"]) for run in line.runs]
                noise = [numbers for numbers in noise if None not in numbers]  # nobody is noisy: nothing to reduce
                rows += [(line.name, alpha, rate, *numbers) for numbers in noise]
                reductions.setdefault(line.name, []).append([before - after for _, before, after in noise] or None)
        written.append(out / f"{stem}-a{alpha:g}.svg")
        folder.write(written[-1].name, chart(list(blocks), reductions))
    folder.write(f"{stem}.csv", _csv(rows).encode())
    return [*written, out / f"{stem}.csv"]


def _label(noise_rate: float) -> str:
    return "clean labels" if noise_rate == 0 else f"{100 * noise_rate:g} % wrong labels"


def _similarity_csv(found: Similarity) -> str:
    rows: list[tuple[object, ...]] = [("noise_rate", "class", "other_class", "similarity")]
    for rate, matrix in zip(found.noise_rates, found.matrices, strict=True):
        for i, name in enumerate(found.class_names):
            rows += [(rate, name, other, matrix[i, j]) for j, other in enumerate(found.class_names)]
    return _csv(rows)


def _csv(rows: Sequence[tuple[object, ...]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
