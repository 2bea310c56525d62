"""What a run leaves in its folder for readers once its last round is done."""

from __future__ import annotations

import io
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch

from fedsir.models.weights import weights_sha256
from fedsir.runs.changed_labels import changed_labels

LABELS_CSV = "labels.csv"

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedsir.data.federation import FederatedData
    from fedsir.runs.config import RunConfig
    from fedsir.runs.run_folder import RunFolder
    from fedsir.simulation.evaluation import Evaluator
    from fedsir.simulation.simulation import Simulation


def write_summary(folder: RunFolder, config: RunConfig, simulation: Simulation, evaluator: Evaluator) -> dict[str, Any]:
    """Write everything that a reader of the folder wants after the last round, result.json last; return the latter."""
    data, split = simulation.data, simulation.split
    predicted, exported = simulation.test_predictions(), simulation.exported_models()
    corrected = evaluator.corrected_labels(simulation.client_states)
    n_changed = int(np.count_nonzero(corrected != data.given_labels))
    identified = evaluator.identification(split)
    accuracy = evaluator.accuracy(predicted)
    labels, labels_by_client = evaluator.relabelling(corrected)
    lines = folder.metrics()
    noise_rates = evaluator.noise_rates(lines)
    accuracies = [line["accuracy"] for line in lines if line["round"] > 0 and "accuracy" in line]
    result = {
        "method": simulation.method.name,
        "dataset": data.name,
        "seed": config.seed,
        "rounds": config.rounds,
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
        "split_note": None if split is None else split.note or None,
        "noise_rates": None if split is None else split.noise_rates or None,
        "noise_before": labels.noise_before,
        "noise_after": labels.noise_after,
        "noise_rate_error": None if noise_rates is None else noise_rates.as_dict(),
        "bytes_up": sum(line["bytes_up"] for line in lines),
        "bytes_down": sum(line["bytes_down"] for line in lines),
        "n_relabelled": n_changed,
        "seconds": simulation.seconds,
        "model_sha256": weights_sha256(exported),
        "run_dir": str(folder.path),
    }
    if split is not None:
        score = None if identified is None else identified.as_dict()
        folder.write_json("identification.json", {"split": simulation.state.to_tree()["split"], "score": score})
    by_client = {client: report.as_dict() for client, report in labels_by_client.items()}
    folder.write_json("relabelling.json", {"overall": labels.as_dict(), "by_client": by_client})
    scores = evaluator.label_scores(simulation.client_states)
    arrays = _label_arrays(data, corrected, scores)
    folder.write("labels.npz", _npz(arrays))
    if n_changed:
        samples = data.source_index.tolist() if data.sample_names is None else data.sample_names
        owners = [data.clients[k] for k in arrays["client"].tolist()]
        names = data.class_names
        listed = changed_labels(samples, data.given_labels, corrected, names, clients=owners, scores=scores)
        folder.write(LABELS_CSV, listed)
    test = {"labels": data.test_labels, "rows": data.test_rows}  # rows: which images, whatever the seed
    folder.write("predictions.npz", _npz({"predicted": predicted} | test))
    folder.write("model.safetensors", safetensors.torch.save(exported))
    folder.write_json("result.json", result)
    return result


def _label_arrays(
    data: FederatedData, corrected: NDArray[np.int64], scores: NDArray[np.float64] | None
) -> dict[str, NDArray[Any]]:
    """Return labels.npz: the given and the corrected label of every training sample."""
    arrays: dict[str, NDArray[Any]] = {
        "given": data.given_labels,
        "corrected": corrected,
        "client": np.repeat(np.arange(data.n_clients), np.diff(data.offsets)),
        "client_names": np.array(data.clients),
        "class_names": np.array(data.class_names),
        "source_index": data.source_index,
    }
    if data.sample_names is not None:
        arrays["sample"] = np.array(data.sample_names)
    if scores is not None:
        arrays["score"] = scores
    return arrays


def _npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()
