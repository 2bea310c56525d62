"""A machine whose processes can be counted and killed."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from three_sites import Machine, write_certificates, write_data

WITHIN = 1500.0  # seconds for anything: processes start slowly on a busy machine, and a wait ends when it can


class Watched(Machine):
    """A machine whose processes can be counted and killed."""

    def alive(self, word: str = "") -> dict[int, str]:
        """Return process id → command of those that work in this folder."""
        mark, found = f"FLWR_HOME={self.folder / 'flower'}".encode(), {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:  # it has ended, or is somebody else's
                    continue
        return {pid: command for pid, command in found.items() if word in command and command}

    def begin(self, **over: Any) -> subprocess.Popen[bytes]:
        config = " ".join(f"{key.replace('_', '-')}={json.dumps(value)}" for key, value in over.items())
        return self.start("flwr-run", "flwr", "run", "app", "sites", "--stream", "--run-config", config)

    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "app" / "run" / "metrics.jsonl"
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []

    def result(self) -> dict[str, Any] | None:
        path = self.folder / "app" / "run" / "result.json"
        return json.loads(path.read_text()) if path.exists() else None

    def wait_for_file(self, name: str) -> None:
        self.wait_for(f"{name} is there", lambda: (self.folder / name).exists())

    def let_go(self, t: int) -> None:
        """Let a client go on that the method `Held` or `Naughty` keeps waiting."""
        (self.folder / f"go-{t}").touch()

    def make_twin(self, site: str) -> None:
        """Start another site that says it is `site`, with a key of its own."""
        self.run(
            *("fedsir", "flower", "site", "--data", f"{site}.npz", "--client-id", site, "--out", "site-twin"),
            *("--superlink", f"127.0.0.1:{self.port}", "--ca", "ca.crt"),
        )
        self.register("twin")
        self.start_site("twin")

    def bring_back(self, site: str, is_back: Any) -> None:
        """Start a site again and again: with its key, Flower lets it in once its heartbeat was missed."""

        def is_so() -> bool:
            process = self.started.get(f"site-{site}")
            if process is None or process.poll() is not None:
                self.start_site(site)
            return bool(is_back())

        self.wait_for(f"{site} is back", is_so)

    def wait_for(self, what: str, is_so: Any) -> None:
        ends = time.monotonic() + WITHIN
        while not is_so():
            assert time.monotonic() < ends, f"{what}: not within {WITHIN:g} s\n{self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log"))

    def federation(self) -> None:
        write_certificates(self.folder)
        write_data(self.folder, n=600)
        self.start_superlink()
        self.write_flower_config()
