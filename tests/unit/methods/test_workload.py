"""What methods say a run costs, by arithmetic on 10 rounds, 4 of 8 clients each, 100 samples a client, 60 public."""

from typing import Any

import pytest

from fedsir.methods.registry import known_methods, method_class
from fedsir.methods.workload import Size, Work

SIZE = Size(rounds=10, n_clients=8, n_samples=800, n_participants=4, n_drawn=400.0, n_public=60)
THIRD = 1 / 3


def works(name: str, size: Size = SIZE, **settings: Any) -> list[Work]:
    cls = method_class(name)
    return cls(cls.Config.model_validate({"name": name, **settings}).scaled_to(size.rounds)).work(size)


def approx(images: float, calls: float, at_once: int) -> Any:
    return pytest.approx((images, calls, at_once))


def numbers(some: list[Work]) -> list[tuple[float, float, int]]:
    return [(work.images, work.calls, work.at_once) for work in some]


def test_seconds_of_work() -> None:
    work = Work(images=100.0, calls=10.0, at_once=2)
    assert work.seconds(0.5, 3.0, workers=1) == 100 * 0.5 + 10 * 3
    assert work.seconds(0.5, 3.0, workers=2) == 40
    assert work.seconds(0.5, 3.0, workers=8) == 40  # there is nothing to do for a third worker


def test_fedavg_calls_every_participant_once_a_round() -> None:
    start, rounds = numbers(works("fedavg", epochs=3))
    assert start == (0, 0, 8)
    assert rounds == (10 * 3 * 400, 10 * 4, 4)


def test_stage_one_asks_everybody_and_pruning_trains_half_of_them() -> None:
    start, rounds = numbers(works("pruning", identify={"epochs": 5}))
    assert start == approx(5.3 * 800, 8, 8)
    assert rounds == (10 * 400 / 2, 10 * 4 / 2, 2)


def test_fedsir_looks_at_all_images_once_more_when_it_relabels() -> None:
    settings: dict[str, Any] = {"kd": {"enabled": False}, "identify": {"epochs": 0}}
    with_, without = (
        numbers(works("fedsir", relabel={"enabled": is_on, "every": 3}, **settings))[1] for is_on in (True, False)
    )
    assert without == (10 * 400, 40, 4)
    assert with_ == approx((10 + 3 * THIRD) * 400, 40, 4)  # rounds 4, 7 and 10


def test_fedcorr_visits_one_after_the_other() -> None:
    settings = {"iterations": 2, "fine_tuning_rounds": 6}
    visits, corrections, training = numbers(works("fedcorr", **settings))
    assert visits == approx(2 * (1 + THIRD) * 400, 2 * 4, 1)
    assert corrections == approx(2 * THIRD / 2 * 400, 2 * 4 / 2, 4)
    assert training == ((2 + 6 / 2) * 400, (2 + 6 / 2) * 4, 4)
    assert works("fedcorr", visits_at_once=3, **settings)[0].at_once == 3
    assert works("fedcorr", visits_at_once=9, **settings)[0].at_once == 4  # as many as there are


def test_fedcorr_in_a_run_that_is_all_pre_processing() -> None:
    visits, _, training = works("fedcorr", iterations=15, fine_tuning_rounds=3)
    assert visits.calls == 10 * 4
    assert (training.images, training.calls) == (0, 0)


def test_rhfl_exchanges_answers_batch_by_batch() -> None:
    start, rounds = numbers(works("rhfl", pretrain_epochs=4, public_batch_size=20, epochs=2))
    assert start == (4 * 800, 8, 8)
    own, public = (2 + THIRD) * 400, 4 * 60 * (1 + THIRD)
    assert rounds == approx(10 * (own + public), 10 * 4 * (1 + 3), 4)  # a look, and an ask for each of three batches
    whole = works("rhfl", pretrain_epochs=4, public_batch_size=20, epochs=2, exchange="round")[1]
    assert (whole.images, whole.calls) == (pytest.approx(rounds[0]), 10 * 4 * 2)


def test_rhfl_trains_longer_where_public_images_are_more_than_own_ones() -> None:
    many = Size(rounds=10, n_clients=8, n_samples=800, n_participants=4, n_drawn=400.0, n_public=350)

    def own(**settings: Any) -> float:
        rounds = works("rhfl", many, public_batch_size=350, **settings)[1]
        return rounds.images / 10 - 4 * 350 * (1 + THIRD)

    assert own() == pytest.approx((3 + THIRD) * 400)  # 350 // 100
    assert own(max_epochs=2) == pytest.approx((2 + THIRD) * 400)


def test_rhfl_with_one_participant_has_nobody_to_learn_from() -> None:
    alone = Size(rounds=10, n_clients=1, n_samples=100, n_participants=1, n_drawn=100.0, n_public=60)
    rounds = works("rhfl", alone, public_batch_size=20)[1]
    assert (rounds.images, rounds.calls) == (pytest.approx(10 * (1 + THIRD) * 100), 10 * 2)


def test_fedned_scores_and_distils_where_the_server_computes() -> None:
    settings = {"warm_up": 4, "public_batch_size": 50, "distillation_steps": 7}
    training, scoring, answers, distilling = numbers(works("fedned", **settings))
    assert training == (10 * 400 + 6 * 400 / 4, 40, 4)  # one in four extremely noisy, with two models
    assert scoring == approx(6 * 4 * 50 * THIRD, 6 * 4, 4)
    assert answers == approx(6 * 7 * 50 * THIRD, 6, 4)
    assert distilling == (6 * 7 * 50, 6, 1)
    assert works("fedned", negative_distillation=False, **settings) == works("fedned", **settings)[:2]


@pytest.mark.parametrize("name", sorted(known_methods()))
def test_every_method_costs_something_and_twice_the_rounds_no_less_than_that(name: str) -> None:
    longer = Size(rounds=20, n_clients=8, n_samples=800, n_participants=4, n_drawn=400.0, n_public=60)
    short, long = (sum(work.seconds(1.0, 1.0, 1) for work in works(name, size)) for size in (SIZE, longer))
    assert 10 * 400 / 2 < short < long
    assert all(1 <= work.at_once <= 8 for work in works(name))
