"""Cells: which settings stand behind a number of a table."""

from fedsir.paper.conditions import Condition
from fedsir.paper.numbers import printed
from fedsir.paper.scales import SCALES
from fedsir.paper.tables import TABLES, Selection, cells


def test_the_whole_table_at_the_papers_scale_is_the_papers_protocol() -> None:
    found = cells(TABLES["table-cifar10"], SCALES["paper"], Selection())
    assert len(found) == 3 * (7 * 12 + 1)  # clean FedAvg has no noise rate
    cell = next(c for c in found if (c.variant.name, c.condition) == ("fedsir", Condition(0.1, 0.9)))
    (config,) = cell.configs
    assert (config.rounds, config.seed, config.data.n_train, config.data.partition) == (100, 42, None, "authors")
    assert (config.data.alpha, config.data.noise_rate, config.method.name) == (0.1, 0.9, "fedsir")
    assert (config.model.name, config.model.weights) == ("resnet18", "imagenet")


def test_the_cpu_scale_is_a_fifth_of_it() -> None:
    (cell,) = cells(
        TABLES["ablation"], SCALES["cpu"], Selection(noise_rates=(0.9,), methods=("without-kd",), seeds=(7,))
    )
    (config,) = cell.configs
    assert (config.rounds, config.data.n_train, config.seed) == (20, 10_000, 7)
    method = config.tree()["method"]
    assert (method["relabel"]["every"], method["relabel"]["min_samples"]) == (4, 20)  # of 20 and 100
    assert (method["kd"]["enabled"], method["la"]["enabled"]) == (False, True)


def test_clean_fedavg_is_one_run_for_all_noise_rates() -> None:
    chosen = Selection(alphas=(0.5,), noise_rates=(0.3, 0.9), methods=("fedavg", "fedavg-all-clean"))
    found = cells(TABLES["table-cifar10"], SCALES["cpu"], chosen)
    assert [(c.variant.name, c.condition.noise_rate) for c in found] == [
        ("fedavg", 0.3),
        ("fedavg", 0.9),
        ("fedavg-all-clean", None),
    ]
    assert [c.configs[0].data.adds_noise for c in found] == [True, True, False]


def test_the_agreement_rule_is_fedsir_itself() -> None:
    chosen = Selection(noise_rates=(0.9,))
    rules = cells(TABLES["relabel-rules"], SCALES["cpu"], chosen)
    parts = cells(TABLES["ablation"], SCALES["cpu"], chosen)
    agreement = next(c for c in rules if c.variant.name == "agreement")
    fedsir = next(c for c in parts if c.variant.name == "fedsir")
    assert agreement.configs == fedsir.configs  # so its run is made once
    assert len({config.sha256 for c in (*rules, *parts) for config in c.configs}) == len(rules) + len(parts) - 1


def test_fedned_has_two_rows_and_the_papers_number_is_beside_the_released_one() -> None:
    found = cells(TABLES["table-cifar10"], SCALES["cpu"], Selection(alphas=(0.5,), noise_rates=(0.6,)))
    rows = [c for c in found if c.variant.method == "fedned"]
    assert [c.variant.title for c in rows] == ["FedNed, as released", "FedNed, distilling"]
    assert [c.configs[0].tree()["method"]["negative_distillation"] for c in rows] == [False, True]
    numbers = [printed("table-cifar10", 0.5, c.variant.name, 0.6) for c in rows]
    assert [number and number.accuracy for number in numbers] == [0.7722, None]


def test_smoke_has_the_same_images_for_everybody() -> None:
    found = cells(TABLES["table-cifar100"], SCALES["smoke"], Selection())
    assert {c.configs[0].data.dataset for c in found} == {"digits"}
    assert {c.configs[0].data.public for c in found} == {"held-out"}


def test_the_images_scale_is_the_papers_protocol_with_fewer_rounds() -> None:
    chosen = Selection(alphas=(0.5,), noise_rates=(0.6,), methods=("fedsir",))
    (ours,) = cells(TABLES["table-cifar10"], SCALES["images"], chosen)
    (paper,) = cells(TABLES["table-cifar10"], SCALES["paper"], chosen)
    ours, paper = ours.configs[0], paper.configs[0]
    assert (ours.rounds, paper.rounds) == (20, 100)
    assert ours.data == paper.data and ours.model == paper.model
    assert (ours.method.relabel.every, paper.method.relabel.every) == (4, 20)
    assert ours.method.relabel.min_samples == paper.method.relabel.min_samples == 100
