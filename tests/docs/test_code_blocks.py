"""Every code block of the docs works: Python runs, commands run as far as they are cheap, TOML is read.

The blocks of a page run one after the other in one folder, and its Python blocks share their names. A block that must
not run has a line `<!-- not run: REASON -->` before it.
"""

import re
import shlex
import sys
import tomllib
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click
import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn
from typer.main import get_command

from fedsir.auditing import extraction
from fedsir.cli import audit_review, main
from fedsir.cli.app import app
from fedsir.paper import figures
from fedsir.runs import estimate, runner
from fedsir.runs.config import RunConfig
from fedsir.runs.recipes import resolve
from fedsir.sweeps import estimate as sweep_estimate
from fedsir.sweeps import sweep
from fedsir.sweeps.sweep_file import KEYS, read_sweep

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^ *(?:<!-- not run: (?P<reason>.+) -->\n *)?```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.M | re.S
)
PARSED_ONLY = ("compare", "report", "doctor")  # the first two need finished runs, doctor takes a while
ALLOWED_NOT_TO_RUN = 7  # three of them need Flower; tests/flower runs what they show


@dataclass(frozen=True)
class Block:
    """language : "python", "toml", or anything else, which may hold commands; line : where it begins"""

    language: str
    text: str
    line: int
    reason: str | None


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["language"], found["text"], text[: found.start("text")].count("\n"), found["reason"])
        for found in FENCE.finditer(text)
    ]


def commands_in(text: str) -> Iterator[tuple[list[str], str | None, str | None]]:
    """Yield the words after `fedsir`, the file that takes the output, and the error that the block shows."""
    lines = text.replace("\\\n", " ").splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        values = dict(re.findall(r"for (\w+) in (\S+)", line))
        command = re.search(r"(?:^ *(?:\$ )?|; do )fedsir (?P<words>[-a-z A-Z][^;]*)", line)
        if command is None or (line.lstrip()[:2] != "$ " and not is_command(command["words"])):
            continue
        typed = command["words"]
        for name, value in values.items():
            typed = typed.replace(f"${name}", value)
        words = shlex.split(typed, comments=True)
        target = words[words.index(">") + 1] if ">" in words else None
        error = following if following.startswith("fedsir: ") else None
        yield words[: words.index(">")] if ">" in words else words, target, error


def is_command(words: str) -> bool:
    """Whether a line that begins with `fedsir` is typed, and not printed as in `fedsir called 8 of 10 …`."""
    return words.split()[0] in {*get_command(app).commands, "--help", "--version", "COMMAND"}  # type: ignore[attr-defined]


def parse(words: list[str]) -> None:
    """Let the command line read the words, without running anything."""
    group = get_command(app)
    name, command, rest = group.resolve_command(click.Context(group), words)  # type: ignore[attr-defined]
    command.make_context(name, rest)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder to work in, with what commands name: `my_images/`, `mymethod.py`, `grid.toml`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FEDSIR_DATA", str(tmp_path / "no-data"))
    for i in range(24):
        path = tmp_path / "my_images" / f"site-{i % 2}" / f"class-{i % 3}" / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), i * 10, np.uint8)).save(path)
    method = 'from fedsir.methods.fedavg import FedAvg\nclass MyMethod(FedAvg):\n    name = "mine"\n'
    (tmp_path / "mymethod.py").write_text(method, encoding="utf-8")
    (tmp_path / "grid.toml").write_text("grid = [{ seed = [0, 1] }]\n", encoding="utf-8")
    sweep_file = tmp_path / "results" / "digits" / "sweep.toml"
    sweep_file.parent.mkdir(parents=True)
    sweep_file.write_bytes((ROOT / "results" / "digits" / "sweep.toml").read_bytes())
    return tmp_path


class Colours(nn.Module):
    """Stands for the pretrained network, whose weights are not here."""

    def features(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))


def without_long_work(patch: pytest.MonkeyPatch) -> None:
    """Let commands end well where they would begin to train, or need data that are not here."""

    def stop(*_: Any, **__: Any) -> NoReturn:
        raise SystemExit(0)

    def plan_run(config: RunConfig, *rest: Any, **options: Any) -> Any:
        return stop() if config.data.dataset.startswith("cifar") else really_plan(config, *rest, **options)

    really_plan = estimate.plan_run
    patch.setattr(estimate, "plan_run", plan_run)
    patch.setattr(runner, "run_experiment", stop)
    patch.setattr(sweep, "run_jobs", stop)
    patch.setattr(sweep_estimate, "estimate_jobs", stop)
    patch.setattr(figures, "similarity", stop)
    patch.setattr(audit_review, "_serve", stop)
    patch.setattr(extraction, "_network", lambda *_, **__: (Colours(), {"kind": "own model"}))
    patch.setattr(webbrowser, "open", lambda _: True)


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs a command as far as it is cheap, and checks that it is accepted."""

    def call(words: list[str], target: str | None, error: str | None) -> None:
        words = ["run" if word == "COMMAND" else word for word in words]
        if words[0] in PARSED_ONLY or "--no-run" in words:
            parse(words)
            return
        capsys.readouterr()
        with monkeypatch.context() as patch:
            without_long_work(patch)
            patch.setattr(sys, "argv", ["fedsir", *words])
            with pytest.raises(SystemExit) as left:
                main()
        printed = capsys.readouterr()
        if left.value.code:
            assert printed.err.strip() == error, f"fedsir {' '.join(words)}"
        elif target is not None:
            Path(target).write_text(printed.out, encoding="utf-8")

    return call


def check_toml(text: str, path: Path) -> None:
    """Read a TOML block as what it is: a sweep, a recipe, or a part of another program's file."""
    path.write_text(text, encoding="utf-8")
    tree = tomllib.loads(text)
    if tree.keys() <= set(KEYS):
        assert read_sweep(path)
    elif "project" not in tree:
        resolve(str(path))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_work(page: Path, folder: Path, typed: Callable[..., None]) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.reason is not None:
            continue
        if block.language == "python":
            if file := re.match(r"# (\w+\.py)\n", block.text):
                (folder / file[1]).write_text(block.text, encoding="utf-8")
            exec(compile(block.text, f"{page.relative_to(ROOT)}, block at line {block.line}", "exec"), names)
        elif block.language == "toml":
            check_toml(block.text, folder / "block.toml")
        else:
            for words, target, error in commands_in(block.text):
                for word in words:
                    if word.endswith(".toml") and not Path(word).exists():
                        # A file of the repository, or the page's own by the name the text uses.
                        source = ROOT / word if (ROOT / word).exists() else folder / "block.toml"
                        Path(word).parent.mkdir(parents=True, exist_ok=True)
                        Path(word).write_bytes(source.read_bytes())
                typed(words, target, error)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_within_the_text_are_understood(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for words in re.findall(r"`fedsir ([^`]+)`", text):
        if is_command(words) and "…" not in words and words.split()[0] not in ("COMMAND", "--help", "--version"):
            parse(shlex.split(" ".join(words.split())))


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page in PAGES:
        named = set(re.findall(r"(?:^|`)make ([\w-]+)", page.read_text(encoding="utf-8"), re.M))
        assert named <= targets, f"{page.name}: {named - targets}"


def test_few_blocks_are_left_out() -> None:
    left_out = [f"{page.name}, line {block.line}" for page in PAGES for block in blocks_of(page) if block.reason]
    assert len(left_out) <= ALLOWED_NOT_TO_RUN, left_out


def test_commands_are_told_from_output() -> None:
    text = "$ fedsir show x --set a.b=1 > y.toml\nfedsir: no\nfedsir called 8 noisy\nfedsir run \\\n  --seed 1  # one\n"
    loop = "for s in 3 4; do fedsir run --seed $s; done\n"
    assert list(commands_in(text + loop)) == [
        (["show", "x", "--set", "a.b=1"], "y.toml", "fedsir: no"),
        (["run", "--seed", "1"], None, None),
        (["run", "--seed", "3"], None, None),
    ]
