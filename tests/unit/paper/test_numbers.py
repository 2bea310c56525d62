"""The paper's numbers: all of them, and some read off its pages by eye."""

from collections import Counter

import pytest

from fedsir.methods.registry import known_methods
from fedsir.paper.numbers import printed, printed_numbers
from fedsir.paper.tables import TABLES


def test_every_table_is_complete() -> None:
    # Ten methods (or what a table has instead) at seven noise rates; Pruning and clean FedAvg once per α.
    assert Counter((number.table, number.alpha) for number in printed_numbers()) == {
        **{("table-cifar10", alpha): 72 for alpha in (0.1, 0.5, 2.0)},
        **{("table-cifar100", alpha): 72 for alpha in (0.3, 0.5, 2.0)},
        ("ablation", 1.0): 37,
        ("relabel-rules", 1.0): 21,
    }


# Sums of all printed accuracies and of all ±, taken from the paper's source by other means than numbers.csv was.
@pytest.mark.parametrize(
    ("table", "accuracies", "half_widths"),
    [
        ("table-cifar10", 15100.91, 293.24),
        ("table-cifar100", 10967.12, 269.73),
        ("ablation", 3121.84, 26.52),
        ("relabel-rules", 1773.09, 14.90),
    ],
)
def test_no_number_is_misread(table: str, accuracies: float, half_widths: float) -> None:
    numbers = [number for number in printed_numbers() if number.table == table]
    assert 100 * sum(number.accuracy for number in numbers) == pytest.approx(accuracies, abs=0.005)
    assert 100 * sum(number.half_width for number in numbers) == pytest.approx(half_widths, abs=0.005)


@pytest.mark.parametrize(
    ("table", "alpha", "variant", "noise_rate", "accuracy", "half_width"),
    [
        ("table-cifar10", 0.1, "fedavg", 0.3, 0.7367, 0.0089),
        ("table-cifar10", 0.5, "rhfl", 0.9, 0.2234, 0.1206),
        ("table-cifar10", 0.5, "fedelc", 0.8, 0.8186, 0.0079),
        ("table-cifar10", 0.5, "fedsir", 0.6, 0.8355, 0.0070),
        ("table-cifar10", 2.0, "fedavg-all-clean", 0.6, 0.8827, 0.0068),
        ("table-cifar100", 0.3, "fedavg", 0.3, 0.5736, 0.0096),
        ("table-cifar100", 2.0, "pruning", 0.9, 0.5687, 0.0102),
        ("ablation", 1.0, "without-relabelling", 0.9, 0.8000, 0.0077),
        ("ablation", 1.0, "without-daagg", 0.3, 0.8565, 0.0070),
        ("relabel-rules", 1.0, "direction", 0.6, 0.8407, 0.0073),
    ],
)
def test_numbers_read_off_the_page(
    table: str, alpha: float, variant: str, noise_rate: float, accuracy: float, half_width: float
) -> None:
    found = printed(table, alpha, variant, noise_rate)
    assert found is not None
    assert (found.accuracy, found.half_width) == (accuracy, half_width)


def test_what_the_paper_does_not_print_is_none() -> None:
    assert printed("table-cifar10", 0.5, "fedsir", 0.95) is None
    assert printed("ablation", 0.5, "fedsir", 0.9) is None


def test_rows_of_tables_are_those_with_numbers() -> None:
    for table in (table for table in TABLES.values() if not table.is_own):
        with_numbers = {number.variant for number in printed_numbers() if number.table == table.name}
        assert {variant.name for variant in table.variants} - {"fedned-distilling"} == with_numbers
    assert {variant.method for variant in TABLES["table-cifar10"].variants} == set(known_methods())
