"""A network that trains in no time."""

import torch
from torch import nn


class Tiny(nn.Module):
    """One hidden layer with batch normalisation, on 8×8 images."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.body = nn.Linear(64, 6)
        self.norm = nn.BatchNorm1d(6)
        self.head = nn.Linear(6, 10)
        with torch.no_grad():
            for layer in (self.body, self.head):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * 0.2)
                layer.bias.zero_()

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.body(x.flatten(1))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits


def always(label: int, strength: float = 100.0) -> dict[str, torch.Tensor]:
    """Return the weights of a network that gives one class whatever it sees."""
    module = Tiny()
    with torch.no_grad():
        module.head.weight.zero_()
        module.head.bias.copy_(torch.eye(10)[label] * strength)
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}
