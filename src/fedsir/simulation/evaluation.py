"""What the evaluator knows and clients do not: scores of the global model, of the split, and of corrected labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.engines.wire import decode
from fedsir.evaluate.accuracy import AccuracyReport, score
from fedsir.evaluate.identification import IdentificationReport, score_identification
from fedsir.evaluate.noise_rates import NoiseRateReport, score_noise_rates
from fedsir.evaluate.relabeling import RelabelReport, overall, score_relabeling

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from fedsir.data.federation import FederatedData
    from fedsir.simulation.simulation import Step
    from fedsir.stages.split import ClientSplit


@dataclass
class Evaluator:
    """Scores a run from outside; the only place where ground truth and results meet.

    As a listener of a simulation it adds accuracy, every few rounds and in the last, and the label noise that is left.
    """

    data: FederatedData
    every: int = 1

    def __call__(self, step: Step) -> None:
        simulation = step.simulation
        if step.round % self.every == 0 or step.round == simulation.rounds:
            step.metrics["accuracy"] = self.accuracy(simulation.test_predictions()).accuracy
        corrected = self.corrected_labels(simulation.client_states)
        step.metrics["noise_after"] = self.noise_after(corrected)
        if step.metrics.get("has_relabelled") and (by_client := self.noise_by_client(corrected)):
            step.metrics["noise_after_by_client"] = by_client

    def __post_init__(self) -> None:
        self.truth = self.data.truth
        self._labels = self.data.given_labels.copy()
        self._states: dict[str, bytes] = {}  # those behind self._labels
        judged = set(self._judged)
        is_judged = [client in judged for client in self.data.clients]
        self._judged_rows = np.flatnonzero(np.repeat(is_judged, np.diff(self.data.offsets)))

    @property
    def _judged(self) -> tuple[str, ...]:
        """The clients that relabelling is scored on: those that really are noisy, or all where nobody knows."""
        return self.truth.noisy_clients if self.truth.is_known else self.data.clients

    def accuracy(self, predicted: NDArray[np.int64]) -> AccuracyReport:
        return score(predicted, self.data.test_labels, self.data.n_classes)

    def identification(self, split: ClientSplit | None) -> IdentificationReport | None:
        """Score who was called noisy; None where nobody was, or nobody knows."""
        if split is None or not self.truth.is_known:
            return None
        return score_identification(
            self.data.clients, set(self.truth.noisy_clients), set(split.noisy), set(split.not_assessed)
        )

    def noise_rates(self, rounds: Iterable[Mapping[str, Any]]) -> NoiseRateReport | None:
        """Score each client's last estimate (`noise_rate_by_client` of a round); None without any, or without truth."""
        true = self.data.noise_by_client()
        estimates: dict[str, float] = {}
        for line in rounds:
            estimates |= line.get("noise_rate_by_client") or {}
        return None if true is None else score_noise_rates(true, estimates)

    def corrected_labels(self, client_states: dict[str, bytes]) -> NDArray[np.int64]:
        """Return the labels clients train on now, (n,), in the order of the federation's rows.

        Only states that are not the ones of the call before are read, so that a round costs its participants.
        """
        given = self.data.given_labels
        for client in self._states.keys() - client_states.keys():
            self._labels[self.data.rows(client)] = given[self.data.rows(client)]
        for client, state in client_states.items():
            if self._states.get(client) is not state:
                rows, corrected = self.data.rows(client), decode(state).get("corrected_labels")
                self._labels[rows] = given[rows] if corrected is None else corrected.numpy()
        self._states = dict(client_states)
        return self._labels.copy()

    def label_scores(self, client_states: dict[str, bytes]) -> NDArray[np.float64] | None:
        """Return how likely each given label is right, (n,), NaN where no client says; None where nobody does."""
        scores = np.full(len(self.data.given_labels), np.nan)
        for client, state in client_states.items():
            rows = self.data.rows(client)
            found = score_of(decode(state), self.data.given_labels[rows])
            if found is not None:
                scores[rows] = found
        return None if np.isnan(scores).all() else scores

    def noise_after(self, corrected: NDArray[np.int64]) -> float | None:
        """Return the share of wrong labels left on the judged clients together; None where nobody knows."""
        true, rows = self.truth.true_labels, self._judged_rows
        if true is None or len(rows) == 0:
            return None
        return score_relabeling(true[rows], self.data.given_labels[rows], corrected[rows]).noise_after

    def noise_by_client(self, corrected: NDArray[np.int64]) -> dict[str, float]:
        """Return the share of wrong labels left on each judged client; empty where nobody knows."""
        true = self.truth.true_labels
        if true is None:
            return {}
        is_wrong = corrected != true
        return {client: float(is_wrong[self.data.rows(client)].mean()) for client in self._judged}

    def relabelling(self, corrected: NDArray[np.int64]) -> tuple[RelabelReport, dict[str, RelabelReport]]:
        """Score corrected labels: pooled over the clients that really are noisy, and by client."""
        true, by_client = self.truth.true_labels, {}
        for client in self.data.clients:
            rows = self.data.rows(client)
            own_true = None if true is None else true[rows]
            by_client[client] = score_relabeling(own_true, self.data.given_labels[rows], corrected[rows])
        return overall(by_client, self._judged), by_client


def score_of(state: Mapping[str, Tensor], given: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return how likely each given label (n,) is right, by what a client remembers; None if its method cannot say."""
    probabilities = state.get("label_probabilities")
    if probabilities is None:
        return None
    return probabilities.numpy()[np.arange(len(given)), given].astype(np.float64)


def describe_data(data: FederatedData) -> dict[str, Any]:
    """Return data.json: who holds what, who is really noisy, and the noise that was realised."""
    truth = data.truth
    return {
        "name": data.name,
        "sha256": data.sha256,
        "images_sha256": data.images_sha256,  # the same for all seeds and settings
        "class_names": list(data.class_names),
        "channels": data.channels,
        "image_size": list(data.image_size),
        "mean": list(data.preprocessing.mean),  # of pixels scaled to [0, 1], per channel
        "std": list(data.preprocessing.std),
        "n_train": len(data.given_labels),
        "n_test": len(data.test_labels),
        "client_sizes": data.size_by_client,
        "given_label_counts": {k: row.tolist() for k, row in zip(data.clients, data.counts(), strict=True)},
        "truth_is_known": truth.is_known,
        "clean_clients": list(truth.clean_clients),
        "noisy_clients": list(truth.noisy_clients),
        "noise_by_client": data.noise_by_client(),
        "transition_counts": truth.transition.tolist(),
        "notes": list(data.notes),
    }
