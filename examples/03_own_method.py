"""A method of your own in one file: average only the clients whose labels are easiest to learn.

fedsir run --method examples/03_own_method.py:EasyHalf --dataset digits --noise-rate 0.6
"""

import tempfile
from pathlib import Path

from pydantic import Field

import fedsir
from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Federation, ServerState
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.settings import MethodConfig


class EasyHalf(FedAvg):  # FedAvg's client half: its task `train` replies with model, n_samples, loss
    name = "easy-half"
    summary = "average of the clients with the lowest training loss"

    class Config(MethodConfig):
        keep: float = Field(0.5, gt=0, le=1, description="share of the clients to average")

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        del t  # every round is alike
        replies = fed.ask(self.train, fed.participants, model=state.model)
        if not replies:
            return state
        n_kept = max(1, round(self.config.keep * len(replies)))
        by_loss = sorted(replies, key=lambda client: replies[client].loss)
        kept = {client: replies[client] for client in by_loss[:n_kept]}
        fed.record(loss=mean_loss(kept), kept=sorted(kept))
        return ServerState(model=average_by_samples(kept))


if __name__ == "__main__":
    for method in ("fedavg", f"{__file__}:EasyHalf"):
        with tempfile.TemporaryDirectory() as out:
            result = fedsir.run(method=method, rounds=5, settings={"data.noise_rate": 0.6}, out=Path(out) / "run")
        print(f"{result['method']}: accuracy {result['accuracy']:.3f}")
