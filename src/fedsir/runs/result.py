"""What a finished run leaves: its result, its model, its labels, its metrics, read from its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.errors import RunFolderError
from fedsir.runs.run_folder import RunFolder, reading

if TYPE_CHECKING:
    from torch import nn

    from fedsir.simulation.metrics import Metrics
    from fedsir.stages.split import ClientSplit


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

    @property
    def metrics(self) -> Metrics:
        """One row per round, round 0 first."""
        from fedsir.simulation.metrics import Metrics

        return Metrics(RunFolder(self.folder).metrics())

    @property
    def split(self) -> ClientSplit | None:
        """Who is clean and who is noisy; None if the method does not find out."""
        from fedsir.stages.split import ClientSplit

        stored = RunFolder(self.folder).read_json("identification.json", "split")
        with reading(self.folder / "identification.json"):
            return None if stored is None else ClientSplit.from_tree(stored["split"])

    def labels(self) -> list[dict[str, str]]:
        """Return sample, client, given and corrected label of every training sample, by name."""
        with reading(self.folder / "labels.npz"), np.load(self.folder / "labels.npz", allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
            names, clients = arrays["class_names"].tolist(), arrays["client_names"].tolist()
            samples = arrays.get("sample", arrays["source_index"]).tolist()
            columns = (samples, arrays["client"], arrays["given"], arrays["corrected"])
            return [
                {"sample": str(sample), "client": clients[k], "given": names[given], "corrected": names[corrected]}
                for sample, k, given, corrected in zip(*columns, strict=True)
            ]

    def model(self, client: str | None = None) -> nn.Module:
        """Return the trained model in evaluation mode; where clients have models of their own, that of a client.

        It takes normalised images, (n, channels, height, width) float32. A model of your own class cannot be rebuilt
        from a folder: use its class and model.safetensors.
        """
        import safetensors.torch

        from fedsir.engines.device_settings import prepared
        from fedsir.models.build import build_model
        from fedsir.models.config import ModelConfig
        from fedsir.models.weights import load_weights
        from fedsir.randomness import KeyedRandom

        path = self.folder / "model.safetensors"
        with reading(path):
            weights = safetensors.torch.load(path.read_bytes())
        if client is not None:
            weights = {k.removeprefix(f"{client}/"): v for k, v in weights.items() if k.startswith(f"{client}/")}
        form = RunFolder(self.folder).read_json("data.json", "class_names")
        with reading(self.folder / "config.toml"):
            config = ModelConfig(**tomllib.loads((self.folder / "config.toml").read_text(encoding="utf-8"))["model"])
        if form is None or not weights:
            raise RunFolderError(f"{self.folder} does not hold this model: data.json or its weights are missing.")
        with prepared("cpu"):  # whatever the caller's default dtype is
            module = build_model(
                config.model_copy(update={"weights": "none"}),
                n_classes=len(form["class_names"]),
                # Folders from before it was stored: the first convolution knows.
                in_channels=form.get("channels") or next(w.shape[1] for w in weights.values() if w.ndim == 4),
                random=KeyedRandom(0),
            )
        load_weights(module, weights)
        return module.eval()


def load_run(folder: str | Path) -> RunResult:
    """Return a finished run from its folder."""
    path = Path(folder)
    if not (path / "config.toml").is_file():
        raise RunFolderError(f"{path} is not a run folder: there is no config.toml in it.")
    fields = RunFolder(path).result()
    if fields is None:
        raise RunFolderError(f"The run in {path} is not finished: the command that began it goes on with it.")
    return RunResult(path, fields)
