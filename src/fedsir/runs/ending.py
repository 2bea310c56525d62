"""What a run leaves in its folder for readers once its last round is done."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch

from fedsir.models.weights import weights_sha256

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedsir.data.federation import FederatedData
    from fedsir.methods.base import ServerState, Weights
    from fedsir.runs.config import RunConfig
    from fedsir.runs.run_folder import RunFolder
    from fedsir.simulation.evaluation import Evaluator


@dataclass(frozen=True)
class Ending:
    """A run after its last round.

    Attributes
    ----------
    sample_names : of the source's training samples, where they have names
    predicted : (n_test,), or (clients, n_test) where clients have models of their own
    corrected : (n,) labels that clients trained on in the end
    exported : what model.safetensors holds
    """

    config: RunConfig
    data: FederatedData
    sample_names: tuple[str, ...] | None
    state: ServerState
    evaluator: Evaluator
    predicted: NDArray[np.int64]
    corrected: NDArray[np.int64]
    exported: Weights
    seconds: float

    def write(self, folder: RunFolder, method: str) -> dict[str, Any]:
        """Write everything that a reader of the folder wants, result.json last; return the latter."""
        split, evaluator = self.state.split, self.evaluator
        identified = evaluator.identification(split)
        accuracy = evaluator.accuracy(self.predicted)
        labels, labels_by_client = evaluator.relabelling(self.corrected)
        lines = folder.metrics()
        accuracies = [line["accuracy"] for line in lines if line["round"] > 0 and "accuracy" in line]
        result = {
            "method": method,
            "dataset": self.data.name,
            "seed": self.config.seed,
            "rounds": self.config.rounds,
            "accuracy": accuracy.accuracy,
            "accuracy_half_width": accuracy.half_width,
            "accuracy_spread": accuracy.spread,
            "best_accuracy": max(accuracies),
            "last_10_accuracy": float(np.mean(accuracies[-10:])),
            "balanced_accuracy": accuracy.balanced_accuracy,
            "clean_clients": None if split is None else list(split.clean),
            "noisy_clients": None if split is None else list(split.noisy),
            "not_assessed": None if split is None else split.not_assessed,
            "two_groups": None if split is None else split.two_groups,
            "identification_accuracy": None if identified is None else identified.accuracy,
            "evidence": None if split is None or split.evidence is None else asdict(split.evidence),
            "noise_before": labels.noise_before,
            "noise_after": labels.noise_after,
            "bytes_up": sum(line["bytes_up"] for line in lines),
            "bytes_down": sum(line["bytes_down"] for line in lines),
            "seconds": self.seconds,
            "model_sha256": weights_sha256(self.exported),
            "run_dir": str(folder.path),
        }
        if split is not None:
            score = None if identified is None else identified.as_dict()
            folder.write_json("identification.json", {"split": self.state.to_tree()["split"], "score": score})
        by_client = {client: report.as_dict() for client, report in labels_by_client.items()}
        folder.write_json("relabelling.json", {"overall": labels.as_dict(), "by_client": by_client})
        folder.write("labels.npz", _npz(self._label_arrays()))
        test = {"labels": self.data.test_labels, "rows": self.data.test_rows}  # rows: which images, whatever the seed
        folder.write("predictions.npz", _npz({"predicted": self.predicted} | test))
        folder.write("model.safetensors", safetensors.torch.save(self.exported))
        folder.write_json("result.json", result)
        return result

    def _label_arrays(self) -> dict[str, NDArray[Any]]:
        data = self.data
        arrays: dict[str, NDArray[Any]] = {
            "given": data.given_labels,
            "corrected": self.corrected,
            "client": np.repeat(np.arange(data.n_clients), np.diff(data.offsets)),
            "client_names": np.array(data.clients),
            "class_names": np.array(data.class_names),
            "source_index": data.source_index,
        }
        if self.sample_names is not None:
            arrays["sample"] = np.array([self.sample_names[i] for i in data.source_index])
        return arrays


def _npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
