"""What a finished run leaves: its result, its model, its labels, its metrics, read from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.errors import ConfigError, MethodError, RunFolderError, did_you_mean
from fedsir.runs.config import flat
from fedsir.runs.file_forms import DataFile, IdentificationFile, ModelForm
from fedsir.runs.run_folder import RunFolder, reading

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from fedsir.simulation.metrics import Metrics
    from fedsir.stages.split import ClientSplit


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Predictions:
    """What a model said of the test images.

    correct : (n_test,) bool, or (clients, n_test) where clients have models of their own
    labels : (n_test,) of the test images, in their order
    rows : (n_test,) which images these are, the same for all seeds; None in folders from before it was stored
    """

    correct: NDArray[np.bool_]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64] | None


class RunResult(Mapping[str, Any]):
    """A finished run: the fields of `fedsir run --json` by name, and what else its folder holds.

    folder : where the run lies
    """

    def __init__(self, folder: Path, fields: Mapping[str, Any]) -> None:
        self.folder, self._fields = folder, dict(fields)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"<RunResult {self['method']} on {self['dataset']}: accuracy {self['accuracy']:.1%}, in {self.folder}>"

    def report(self, path: str | Path | None = None, *, images: bool = True) -> Path:
        """Write the page of this run, by default report.html in its folder, and return its path."""
        import fedsir  # pages are above runs; the package looks its public names up when somebody asks for them

        return fedsir.write_report(self, path, images=images)

    @property
    def metrics(self) -> Metrics:
        """One row per round, round 0 first."""
        from fedsir.simulation.metrics import Metrics

        rows = RunFolder(self.folder).metrics()
        with reading(self.folder / "metrics.jsonl"):
            if not rows:
                raise FileNotFoundError
            if [row["round"] for row in rows] != list(range(self["rounds"] + 1)):
                raise ValueError("rounds are missing")
        return Metrics(rows)

    @property
    def split(self) -> ClientSplit | None:
        """Who is clean, who is noisy, who could not be assessed; None if the method does not find out."""
        from fedsir.stages.split import ClientSplit

        stored = RunFolder(self.folder).read_json("identification.json", IdentificationFile)
        with reading(self.folder / "identification.json"):
            return None if stored is None else ClientSplit.from_tree(stored["split"])

    @property
    def seed(self) -> int:
        """The seed, which results of older versions do not hold."""
        return int(self._stored["seed"])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Dotted key → value of every setting but the seed."""
        return {key: value for key, value in self._stored.items() if key != "seed"}

    @cached_property
    def _stored(self) -> dict[str, Any]:
        found = dict(flat(RunFolder(self.folder).stored_config()))
        with reading(self.folder / "config.toml"):
            if type(found["seed"]) is not int or not {"method.name", "data.dataset"} <= found.keys():
                raise ValueError("every run has these settings")
        return found

    @cached_property
    def images_sha256(self) -> str | None:
        """Hash of all images of the data set; None in folders from before it was stored."""
        return (RunFolder(self.folder).read_json("data.json", DataFile) or {}).get("images_sha256")

    @cached_property
    def predictions(self) -> Predictions:
        """Which test images the model got right."""
        path = self.folder / "predictions.npz"
        if not path.exists():
            raise RunFolderError(
                f"{path} is missing, which comparisons need: leave the folder out, or remove its result.json and then "
                f"run `{RunFolder(self.folder).command()}`."
            )
        with reading(path), np.load(path, allow_pickle=False) as arrays:
            predicted, labels, rows = arrays["predicted"], arrays["labels"], arrays.get("rows")
            correct = np.asarray(predicted == labels)
            if (
                any(array.dtype.kind not in "iu" for array in (predicted, labels, *([] if rows is None else [rows])))
                or labels.ndim != 1
                or predicted.shape[-1:] != labels.shape
                or (rows is not None and rows.shape != labels.shape)
                or abs(correct.mean() - self["accuracy"]) > 1e-6
            ):
                raise ValueError("these are not the predictions behind result.json")
        return Predictions(correct, labels, rows)

    def labels(self) -> list[dict[str, str]]:
        """Return sample, client, given and corrected label of every training sample, by name."""
        with reading(self.folder / "labels.npz"), np.load(self.folder / "labels.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
            names, clients = arrays["class_names"], arrays["client_names"]
            for column, known in (("client", clients), ("given", names), ("corrected", names)):
                if arrays[column].min() < 0:  # which Python would count from the end
                    raise ValueError(f"{column} is negative")
                arrays[column] = known[arrays[column]].astype(str)
            samples = arrays.get("sample", arrays["source_index"]).astype(str)
            columns = (samples, arrays["client"], arrays["given"], arrays["corrected"])
            return [
                dict(zip(("sample", "client", "given", "corrected"), row, strict=True))
                for row in zip(*(column.tolist() for column in columns), strict=True)
            ]

    def model(self, client: str | None = None) -> nn.Module:
        """Return the trained model in evaluation mode; where clients have models of their own, that of a client.

        It takes normalised images, (n, channels, height, width) float32; `predict` takes them as they are. A model of
        your own class is not rebuilt from a folder: load model.safetensors into it.
        """
        from fedsir.engines.device_settings import prepared
        from fedsir.models.build import build_model
        from fedsir.models.config import ModelConfig, is_dotted
        from fedsir.models.weights import load_weights
        from fedsir.randomness import KeyedRandom

        weights, form = self._weights(client), self._form
        tree = RunFolder(self.folder).stored_config()
        with reading(self.folder / "config.toml"):
            config = ModelConfig(**tree["model"]).model_copy(update={"weights": "none"})
        if is_dotted(config.name):
            raise ConfigError(
                f"The model of {self.folder} is {config.name}, code that a folder cannot have run: make one yourself "
                "and load model.safetensors into it."
            )
        with reading(self.folder / "model.safetensors"), prepared("cpu"):  # whatever the caller's default dtype is
            module = build_model(
                config,
                n_classes=len(self.class_names),
                # Folders from before it was stored: the first convolution has the fewest.
                in_channels=form.get("channels") or min(w.shape[1] for w in weights.values() if w.ndim == 4),
                random=KeyedRandom(0),
                image_size=tuple(form.get("image_size") or (32, 32)),
            )
        load_weights(module, weights)
        return module.eval()

    def predict(self, images: Any, client: str | None = None) -> NDArray[np.int64]:
        """Return the class of each image, (n,), as a position in `class_names`.

        Parameters
        ----------
        images : as `FederatedData.from_arrays` takes them; those of another size are brought to the run's
        client : whose model, where clients have models of their own
        """
        import torch

        from fedsir.data.from_arrays import images_of_form
        from fedsir.data.preprocessing import Preprocessing
        from fedsir.evaluate.accuracy import predict

        form = self._form
        if form.get("mean") is None or form.get("std") is None:
            raise RunFolderError(
                f"{self.folder} does not say how its images were normalised, because an older version wrote it: "
                "normalise yours the same way, and call model()."
            )
        pixels = images_of_form(images, form["channels"], tuple(form["image_size"]))
        as_trained = Preprocessing(tuple(form["mean"]), tuple(form["std"]), flip=False, crop_padding=0)
        return predict(self.model(client), torch.from_numpy(pixels), as_trained.normalise)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes, in the order of the model's outputs."""
        return tuple(self._form["class_names"])

    @cached_property
    def _form(self) -> dict[str, Any]:
        folder = RunFolder(self.folder)
        form = folder.read_json("data.json", DataFile) or folder.read_json("agreement.json", ModelForm)
        if form is None:
            raise RunFolderError(f"{self.folder / 'data.json'} is missing, which says which classes the model knows.")
        return form

    def _weights(self, client: str | None) -> dict[str, Tensor]:
        by_client: dict[str, dict[str, Tensor]] = {}
        for name, tensor in self.stored_weights().items():
            owner, _, key = name.rpartition("/")
            by_client.setdefault(owner, {})[key] = tensor
        if "" in by_client:
            return by_client[""]
        if client is None:
            raise MethodError(f"With {self['method']} every client has a model of its own: name a client.")
        if client not in by_client:
            raise ConfigError(f"{self.folder}: there is no client {client!r}.{did_you_mean(client, by_client)}")
        return by_client[client]

    def stored_weights(self) -> dict[str, Tensor]:
        """Return the tensors of model.safetensors, once they are those that the run ended with."""
        import safetensors.torch

        from fedsir.models.weights import weights_sha256

        path = self.folder / "model.safetensors"
        if not path.exists():
            raise RunFolderError(
                f"{self.folder} holds no model, because model.safetensors is missing: restore it, or run "
                f"{self.folder / 'config.toml'} again with another --out."
            )
        with reading(path):
            stored = safetensors.torch.load(path.read_bytes())
            if weights_sha256(stored) != self["model_sha256"]:
                raise ValueError("this is another model")
        return stored


def load_run(folder: str | Path) -> RunResult:
    """Return a finished run from its folder."""
    path = Path(folder)
    result = RunResult(path, RunFolder(path).finished_result())
    if "not_assessed" not in result and (split := result.split) is not None:
        # From before there was a third verdict, when whoever could not be assessed was among the noisy.
        told = {"noisy_clients": list(split.noisy), "not_assessed": split.not_assessed, "two_groups": split.two_groups}
        return RunResult(path, {**result, **told})
    return result
