"""What the evaluator knows and clients do not: scores of the global model, of the split, and of corrected labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.engines.wire import decode
from fedsir.evaluate.accuracy import AccuracyReport, score
from fedsir.evaluate.identification import IdentificationReport, score_identification
from fedsir.evaluate.relabeling import RelabelReport, overall, score_relabeling_by_client

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedsir.data.federation import FederatedData, GroundTruth
    from fedsir.stages.split import ClientSplit


@dataclass
class Evaluator:
    """Scores a run from outside; the only place where ground truth and results meet."""

    data: FederatedData
    truth: GroundTruth

    def accuracy(self, predicted: NDArray[np.int64]) -> AccuracyReport:
        return score(predicted, self.data.test_labels, self.data.n_classes)

    def identification(self, split: ClientSplit | None) -> IdentificationReport | None:
        """Score who was called noisy; None where nobody was, or nobody knows."""
        if split is None or not self.truth.is_known:
            return None
        return score_identification(
            self.data.clients, set(self.truth.noisy_clients), set(split.noisy), set(split.not_assessed)
        )

    def corrected_labels(self, client_states: dict[str, bytes]) -> NDArray[np.int64]:
        """Return the labels clients train on now, (n,), in the order of the federation's rows."""
        labels = self.data.given_labels.copy()
        for client, state in client_states.items():
            corrected = decode(state).get("corrected_labels")
            if corrected is not None:
                labels[self.data.rows(client)] = corrected.numpy()
        return labels

    def relabelling(self, corrected: NDArray[np.int64]) -> tuple[RelabelReport, dict[str, RelabelReport]]:
        """Score corrected labels: pooled over the clients that really are noisy, and by client."""
        rows = {client: self.data.rows(client) for client in self.data.clients}
        true = self.truth.true_labels
        by_client = score_relabeling_by_client(
            None if true is None else {client: true[r] for client, r in rows.items()},
            {client: self.data.given_labels[r] for client, r in rows.items()},
            {client: corrected[r] for client, r in rows.items()},
        )
        judged = self.truth.noisy_clients if self.truth.is_known else self.data.clients
        return overall(by_client, set(judged)), by_client


def describe_data(data: FederatedData, truth: GroundTruth) -> dict[str, Any]:
    """Return data.json: who holds what, who is really noisy, and the noise that was realised."""
    from fedsir.data.federation import noise_by_client

    return {
        "name": data.name,
        "sha256": data.sha256,
        "class_names": list(data.class_names),
        "n_train": len(data.given_labels),
        "n_test": len(data.test_labels),
        "client_sizes": data.size_by_client,
        "given_label_counts": {k: row.tolist() for k, row in zip(data.clients, data.counts(), strict=True)},
        "truth_is_known": truth.is_known,
        "clean_clients": list(truth.clean_clients),
        "noisy_clients": list(truth.noisy_clients),
        "noise_by_client": noise_by_client(data, truth),
        "transition_counts": truth.transition.tolist(),
        "notes": list(data.notes),
    }
