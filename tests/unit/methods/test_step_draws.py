"""Random numbers for training steps."""

from collections.abc import Callable

import pytest
import torch

from fedsir.methods.base import Client
from fedsir.methods.step_draws import StepDraws

MakeClient = Callable[..., Client]


def test_batches_of_any_size_get_the_same_rows(make_client: MakeClient) -> None:
    client = make_client(10)
    whole = StepDraws(client, "mixup", 2, 3).take(20)
    assert whole.shape == (20, 3)
    assert 0 <= whole.min() < whole.max() < 1
    pieces = StepDraws(client, "mixup", 2, 3)
    assert torch.equal(torch.cat([pieces.take(n) for n in (4, 6, 7, 3)]), whole)
    assert not torch.equal(StepDraws(client, "views", 2, 3).take(20), whole)


def test_more_than_was_drawn_is_an_error(make_client: MakeClient) -> None:
    draws = StepDraws(make_client(10), "mixup", 1, 2)
    draws.take(8)
    with pytest.raises(ValueError, match="11 draws were asked for, but only 10 were made"):
        draws.take(3)
