"""Tables as text, and text that is safe to print."""

import json

import pytest

from fedsir.printable import printable
from fedsir.text_table import latex_table, markdown_table, text_table

WIDE = "\u65e5\u672c\u8a9e"  # three characters, six columns


def test_numbers_are_on_the_right_and_wide_characters_count_twice() -> None:
    assert text_table(("name", "n"), [("a", "1,000"), (WIDE, "2")]) == [
        "name        n",
        "a       1,000",
        f"{WIDE}      2",
    ]
    assert text_table((), []) == []
    assert text_table((), [("1 s", "run"), ("10 min", "x")], left=(1,)) == ["   1 s  run", "10 min  x"]


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["hospital of the holy spirit", "short"], ["hospit…spirit", "short"]),
        (["the same beginning 1 and end", "the same beginning 2 and end"], ["…ning 1 and end", "…ning 2 and end"]),
        (
            ["x" * 20 + "1" + "y" * 20, "x" * 20 + "2" + "y" * 20],
            ["x" * 20 + "1" + "y" * 20, "x" * 20 + "2" + "y" * 20],
        ),
    ],
    ids=["middle", "beginning", "not at all"],
)
def test_names_give_way_to_numbers_while_they_can_be_told_apart(names: list[str], shown: list[str]) -> None:
    width = len(shown[0]) + 6 if "…" in shown[0] else 20
    lines = text_table(("n", "m"), [(name, "12345") for name in names], width=width)
    assert [line.split("12345")[0].strip() for line in lines[1:]] == shown
    assert all(line.endswith("12345") for line in lines[1:])


def test_markdown_and_latex_escape_what_is_special_there() -> None:
    assert markdown_table(("a|b", "n"), [("c", "1")]) == [r"| a\|b | n |", "|---|---:|", "| c | 1 |"]
    assert latex_table(("m_1", "±"), [("a\\b", "5 %")]) == [
        *(r"\begin{tabular}{lr}", r"\toprule", r"m\_1 & $\pm$ \\", r"\midrule", r"a\textbackslash{}b & 5 \% \\"),
        *(r"\bottomrule", r"\end{tabular}"),
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("São Paulo [/b] \u65e5\u672c", "São Paulo [/b] \u65e5\u672c"),
        ("\x1b[31mred", r"\u001b[31mred"),
        ("bell\x07 cr\r lf\n del\x7f csi\x9b", r"bell\u0007 cr\u000d lf\u000a del\u007f csi\u009b"),
        ("\u202egnp.exe\u2066 \u2028", r"\u202egnp.exe\u2066 \u2028"),
        ("lone \udc80 tag \U000e0041", r"lone \udc80 tag \udb40\udc41"),
        ("\U0001f469\u200d\U0001f52c", "\U0001f469\u200d\U0001f52c"),
    ],
)
def test_nothing_steers_the_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert json.loads(printable(json.dumps(text, ensure_ascii=False))) == text
