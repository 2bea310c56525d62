"""Methods that compare models on unlabelled images run over real sites that have a copy of them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from three_on_a_grid import SETTINGS, Federation

from fedsir.deployment.app_config import ServerConfig
from fedsir.deployment.server import serve
from fedsir.deployment.site import site_app
from fedsir.deployment.site_folder import write_site
from fedsir.errors import DataError, FedsirError
from fedsir.runs.config import parse_config

pytestmark = pytest.mark.flower


@pytest.fixture
def public(sites: Federation) -> Path:
    path = sites.folder / "public.npz"
    np.savez(path, images=sites.digits.images[sites.digits.train_rows[900:940], 0])
    for name in ("hill", "mill", "lake"):
        give(sites, name, path)
    return path


def give(sites: Federation, name: str, public: Path | None) -> None:
    data = sites.folder / f"{name}.npz"
    write_site(sites.folder / name, name, data, public=public, superlink="localhost:1", ca=None)


def run(sites: Federation, method: str, public: Any) -> dict[str, Any]:
    sites.app = site_app(method, __file__)
    sites.grid.answer = sites.app
    config = parse_config(
        {"rounds": 2, "model": SETTINGS["model"], "method": {"name": method}, "data": {"public": str(public)}}
    )
    server = ServerConfig(run_dir=str(sites.folder / f"run-{method}"), wait=0.1, timeout=5.0, min_sites=3)
    return serve(sites.grid, server, config)


@pytest.mark.parametrize("method", ["rhfl", "fedned"])
def test_a_method_that_needs_them_runs_over_sites(sites: Federation, public: Path, method: str) -> None:
    result = run(sites, method, public)
    assert result["left_out"] == []
    assert set(result["accuracy_by_site"]) == {"hill", "mill", "lake"}


def test_a_site_without_its_copy_or_with_another_one_is_left_out_by_name(sites: Federation, public: Path) -> None:
    other = sites.folder / "other.npz"
    np.savez(other, images=sites.digits.images[sites.digits.train_rows[950:990], 0])
    give(sites, "hill", None)
    give(sites, "lake", other)
    result = run(sites, "rhfl", public)
    assert {(entry["client"], entry["reason"]) for entry in result["left_out"]} == {
        ("hill", "it has no copy of the public images, which rhfl needs: `fedsir flower site --public` names one"),
        ("lake", "its public images are not the server's: copy those of the server"),
    }


def test_what_is_missing_is_said_before_anything_trains(sites: Federation, tmp_path: Path) -> None:
    with pytest.raises(FedsirError, match=r"rhfl needs unlabelled images that everybody has: name an npz file"):
        run(sites, "rhfl", "held-out")
    with pytest.raises(FedsirError, match=r"data.public: .*nowhere.npz is not there"):
        run(sites, "rhfl", tmp_path / "nowhere.npz")
    with pytest.raises(DataError, match="--public must name"):
        give(sites, "hill", tmp_path / "nowhere.npz")
