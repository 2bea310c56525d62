"""A relabel round of the preset `plus` against the authors': the server's time, the clients' time, and bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Outcome, interleave
from fedsir.engines.wire import encode
from fedsir.stages.bayes import Temperature, likeliest_scores, weigh_labels
from fedsir.stages.discriminant import class_moments, discriminant, discriminant_scores, on_the_wire
from fedsir.stages.noise_rates import discriminants_of_others
from fedsir.stages.relabel import aggregate_references, extract_spectra, relabel
from fedsir.stages.spectrum import Features, Labels, class_features
from fedsir.stages.split import OffDiagonal, split_clients

N_CLASSES, D, RANK, N_CLEAN, N_CLIENTS, PER_CLIENT = 10, 512, 12, 3, 10, 1000


def run() -> Iterator[Outcome]:
    """Yield the outcomes for ten clients with 1,000 samples each, three of them clean."""
    random = np.random.default_rng(0)
    centres = random.random((N_CLASSES, D), dtype=np.float32)

    def client() -> tuple[Features, Labels]:
        labels = random.integers(N_CLASSES, size=PER_CLIENT)
        return centres[labels] + 0.3 * random.random((PER_CLIENT, D), dtype=np.float32), labels

    clients = {str(k): client() for k in range(N_CLIENTS)}
    clean, one = list(clients.values())[:N_CLEAN], clients["9"]
    shape = f"d = {D}, {N_CLASSES} classes, {N_CLEAN} clean clients × {PER_CLIENT} samples"
    spectra = {
        str(k): extract_spectra(class_features(*each, N_CLASSES), RANK, "after_block") for k, each in enumerate(clean)
    }
    sums = {k: on_the_wire(class_moments(*each, N_CLASSES)) for k, each in clients.items()}
    of_clean = list(sums.values())[:N_CLEAN]
    references = aggregate_references(spectra, weight="count_gap_share", min_samples=50, min_strength=0.03)
    fitted = discriminant(of_clean)

    seconds = interleave(
        lambda: discriminant(of_clean),
        lambda: aggregate_references(spectra, weight="count_gap_share", min_samples=50, min_strength=0.03),
        repeats=5,
    )
    yield Outcome("plus_server", f"the server in a relabel round, plus against authors; {shape}", *seconds, "s")
    seconds = interleave(
        lambda: class_moments(*clean[0], N_CLASSES),
        lambda: extract_spectra(class_features(*clean[0], N_CLASSES), RANK, "after_block"),
        repeats=5,
    )
    yield Outcome("plus_clean_client", f"a clean client in a relabel round, after the features; {shape}", *seconds, "s")
    first, belief = (
        discriminant_scores(one[0], discriminants_of_others(sums, dict.fromkeys(sums, 1.0))["9"]),
        Temperature(),
    )

    def weighed() -> None:
        looks = ((first, belief), (discriminant_scores(one[0], fitted), belief))
        weigh_labels(likeliest_scores(looks, one[1]), one[1], temperature=1.0)

    seconds = interleave(weighed, lambda: relabel(*one, references), repeats=5)
    yield Outcome("plus_noisy_client", f"a noisy client in a relabel round, after the features; {shape}", *seconds, "s")
    statistics = {k: OffDiagonal(0.3 + 0.05 * int(k), 0.1 + 0.05 * int(k), N_CLASSES) for k in clients}
    seconds = interleave(
        lambda: discriminants_of_others(sums, dict.fromkeys(sums, 1.0)), lambda: split_clients(statistics), repeats=3
    )
    yield Outcome("plus_stage_one", f"the server in Stage I, one pass, {N_CLIENTS} clients; {shape}", *seconds, "s")
    for name, what, ours, theirs in (
        (
            "plus_bytes_up",
            "bytes that a clean client sends in a relabel round, beside its model",
            of_clean[0],
            spectra["0"],
        ),
        ("plus_bytes_down", "bytes that a noisy client gets in a relabel round, beside the model", fitted, references),
    ):
        sizes = (len(encode(vars(ours))), len(encode(vars(theirs))))
        yield Outcome(name, f"{what}, plus against authors; {shape}", *sizes, "bytes", is_at_most=True)
