"""The folder that an audit leaves, for those who read it.

audit.json              what was audited, with paths: the owner's
summary.json            the answer in words, and counts: made to be shared, as are the next four
clients.csv             a row per client, worst first
confusion.csv           given → suggested by client
report.html             a page with these
clients/NAME/samples.csv, samples.parquet   a client's own: a row per sample, worst first
clients/NAME/skipped.csv                    images of the client that could not be read; only if there are some
clients/NAME/report.html                    the client's own page, with thumbnails
clients/NAME/decisions.jsonl                what a person decided in `fedsir audit review`; an audit never touches it
clients/NAME/labels.csv, undo.csv           what `fedsir audit apply` wrote

NAME is a spelling of the client's name that every file system takes; "folders" in audit.json has it.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fedsir.auditing.table import Table
from fedsir.errors import FedsirError

SITES = "sites"  # kind of data of an audit whose samples are elsewhere
SITES_FOLDER = "SITE/audit"  # where a site keeps them; SITE is the folder that `fedsir flower site` wrote
MARK = ".fedsir-audit"  # written first: a folder that a kill left half done is still an audit's
LONGEST_FOLDER = 120  # characters; file systems take 255 bytes
SAMPLE_COLUMNS = (
    "rank",
    "id",
    "path",
    "given_label",
    "suggested_label",
    "is_label_issue",
    "score",
    "suggested_probability",
)


class AuditFolderError(FedsirError):
    """An audit's folder cannot be used as it is."""


class AuditFolder:
    """An audit's files. Opening a folder that is none is an error."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.audit: dict[str, Any] = self._json("audit.json")
        folders = self.audit.get("folders")
        if not isinstance(folders, dict) or not all(_is_plain(name) for name in folders.values()):
            raise AuditFolderError(f"{self.path / 'audit.json'} is damaged: run the audit again.")

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        return self._json("summary.json")

    @property
    def class_names(self) -> list[str]:
        """Every label."""
        return list(self.audit["class_names"])

    @property
    def client_names(self) -> list[str]:
        """Every client, worst first; an error where their samples are elsewhere."""
        if self.audit.get("data", {}).get("kind") == SITES:
            raise AuditFolderError(
                f"{self.path} is the summary of an audit on Flower: the samples are at the sites. Run this at a site, "
                f"with {SITES_FOLDER}; SITE is its folder from `fedsir flower site`."
            )
        return list(self.audit["folders"])

    def clients(self) -> list[dict[str, str]]:
        """Return the rows of clients.csv, as text."""
        return self._rows(self.path / "clients.csv")

    def confusion(self) -> list[dict[str, str]]:
        """Return the rows of confusion.csv, as text."""
        return self._rows(self.path / "confusion.csv")

    def client_folder(self, client: str) -> Path:
        """Return the folder of a client."""
        folders = self.audit["folders"]
        if client not in folders:
            from fedsir.errors import did_you_mean

            raise AuditFolderError(f"{self.path}: there is no client {client!r}.{did_you_mean(client, folders)}")
        return self.path / "clients" / str(folders[client])

    def samples(self, client: str) -> Table:
        """Return a client's samples, worst first: the columns of samples.parquet as arrays."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.client_folder(client) / "samples.parquet"
        try:
            columns = pq.read_table(path, columns=list(SAMPLE_COLUMNS))
        except (OSError, pa.ArrowException) as problem:
            reason = str(problem).partition("\n")[0]
            raise AuditFolderError(f"{path} cannot be read ({reason}): run the audit again.") from None
        return Table({name: columns[name].to_numpy() for name in SAMPLE_COLUMNS})

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            found = json.loads(path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            half = " (an audit there was cut short: run it again)" if (self.path / MARK).exists() else ""
            raise AuditFolderError(
                f"{self.path} is not the folder of an audit: there is no {name} in it{half}."
            ) from None
        except OSError as problem:
            raise AuditFolderError(f"{path} cannot be read: {problem.strerror}.") from None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise AuditFolderError(f"{path} is damaged: run the audit again.")
        return found

    def _rows(self, path: Path) -> list[dict[str, str]]:
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
        except (OSError, ValueError, csv.Error) as problem:
            raise AuditFolderError(f"{path} cannot be read ({problem}): run the audit again.") from None


def folder_names(clients: Iterable[str]) -> dict[str, str]:
    """Return a folder's name for each client: percent-encoded, never hidden, never too long, never one for two."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for client in clients:
        name = quote(client, safe="")
        if name.startswith("."):
            name = "%2E" + name[1:]
        # Some file systems do not tell "Site" from "site".
        if len(name) > LONGEST_FOLDER or name.lower() in taken:
            name = f"{name[:LONGEST_FOLDER]}-{hashlib.sha256(client.encode()).hexdigest()[:12]}"
        taken.add(name.lower())
        names[client] = name
    return names


def _is_plain(name: object) -> bool:
    """Whether a name from audit.json stays inside the folder."""
    return isinstance(name, str) and name != "" and not name.startswith(".") and "/" not in name and "\\" not in name
