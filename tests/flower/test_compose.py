"""The compose file as far as it can be tried without a container engine: it is valid, and says what the docs say."""

from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="comes with fedsir[flower]")
from three_sites import Machine  # noqa: E402

from fedsir.engines.flower.offline import QUIET  # noqa: E402

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose.yaml"


def test_the_compose_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    for service in services.values():
        assert QUIET.items() <= service["environment"].items()
        assert (COMPOSE.parent / "Dockerfile").is_file() and service["build"] == "."
    started: list[str] = []
    monkeypatch.setattr(Machine, "start", lambda self, name, *words: started.extend(words))
    monkeypatch.setattr("three_sites.wait_for_port", lambda *_: None)
    machine = Machine(tmp_path, quiet=True)
    machine.started["superlink"] = None  # type: ignore[assignment]
    machine.start_superlink()
    options = {word.partition("=")[0] for word in services["superlink"]["command"]}
    assert options == {word for word in started if word.startswith("-")} | {"flower-superlink"}
    assert services["site"]["command"] == ["/site/start.sh"]
    assert [port.partition(":")[2] for port in services["superlink"]["ports"]] == ["8000"]
