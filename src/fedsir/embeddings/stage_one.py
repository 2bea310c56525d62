"""Stage I on features: which clients' labels look wrong."""

from __future__ import annotations

from typing import Any, Literal, get_args

from fedsir.embeddings.federation import Federation
from fedsir.embeddings.results import Identification
from fedsir.errors import DataError
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats, pair_similarities
from fedsir.stages.noise_rates import NoiseRate, judged, split_by_noise_rates
from fedsir.stages.pairwise import split_by_pairs
from fedsir.stages.spectrum import one_thread
from fedsir.stages.split import ClientSplit, split_clients

Split = Literal["rates", "pairwise", "auto", "always"]


def identify(
    features: Any,
    labels: Any,
    clients: Any,
    *,
    split: Split = "rates",
    min_class_samples: int = 5,
) -> Identification:
    """Return which clients' labels look wrong, from features of any embedding (Stage I).

    By default each client's noise rate is estimated, by what the classes of all the others look like. The paper's own
    statistics compare clients instead: wrong labels mix classes, so those of a noisy client look more alike.

    Parameters
    ----------
    features : (n, d) numbers: a NumPy array, torch tensor, pandas DataFrame or list
    labels : (n,) given label of each sample: whole numbers, or names of any hashable kind
    clients : (n,) whose sample it is: numbers or names of any hashable kind
    split : "rates" estimates noise rates, and is "auto" where there are too few samples for that. "pairwise" compares
        clients pair by pair of classes, "auto" by the mean similarity of each; both call clients noisy only where the
        evidence speaks for two groups. "always" makes two groups, as the paper does
    min_class_samples : a class with fewer samples on a client is in none of its class similarities, unless fewer than
        two classes have so many; noise rates use all samples
    """
    if split not in get_args(Split):
        raise DataError(f"split must be {', '.join(map(repr, get_args(Split)[:-1]))} or 'always', not {split!r}")
    return identify_in(Federation(features, labels, clients), split, min_class_samples)


@one_thread()
def identify_in(federation: Federation, split: Split = "rates", min_class_samples: int = 5) -> Identification:
    """Return `identify` of samples that are checked and coded."""
    statistics, pairs, n_samples, n_classes = {}, {}, {}, {}
    for key, collected in federation.class_features():
        directions = class_directions(collected, min_class_samples)
        statistics[key] = off_diagonal_stats(class_similarity(directions))
        if split == "pairwise":
            pairs[key] = pair_similarities(collected, directions)
        n_samples[key], n_classes[key] = int(collected.counts.sum()), int((collected.counts > 0).sum())
    rates: dict[str, NoiseRate | None] = {}
    temperature = None
    if split == "rates":
        rates, belief = judged(federation.others, statistics)
        found, temperature = split_by_noise_rates(rates, statistics), belief.guess
    elif split == "pairwise":
        found = split_by_pairs(statistics, pairs)
    else:
        found = split_clients(statistics, split)
    named = federation.named
    return Identification(
        clean=tuple(federation.clients[int(key)] for key in found.clean),
        noisy=tuple(federation.clients[int(key)] for key in found.noisy),
        not_assessed=named(found.not_assessed),
        statistics=named({key: (stats.mean, stats.energy) for key, stats in statistics.items()}),
        probability_noisy=named(probability_noisy(found)),
        noise_rate=named({key: (rate.rate, rate.standard_error) for key, rate in rates.items() if rate is not None}),
        n_samples=named(n_samples),
        n_classes=named(n_classes),
        evidence=found.evidence,
        two_groups=found.two_groups,
        effects=named(found.effects),
        note=found.note,
        temperature=temperature,
    )


def probability_noisy(found: ClientSplit) -> dict[str, float]:
    """Return how likely each client is noisy: 0 where there is one group, which has no noisy half."""
    if found.noise_rates or found.has_two_groups:
        return found.posterior_noisy
    return dict.fromkeys(found.posterior_noisy, 0.0)
