"""`fedsir.write_report`: one page about whatever fedsir has returned or written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedsir.auditing.folder import AuditFolder
from fedsir.auditing.result import AuditResult
from fedsir.report.write import PAGE, ReportError, refuse_target, write_page
from fedsir.report.write import write_report as write_page_of_runs
from fedsir.runs.result import RunResult

Source = RunResult | AuditResult | Path | str


def write_report(
    what: Source | Iterable[Source],
    out: Path | str | None = None,
    *,
    only: Mapping[str, Any] | None = None,
    against: str | None = None,
    images: bool = True,
    similarities: bool = False,
    data_dir: Path | None = None,
) -> Path:
    """Write one HTML file about a run, several runs, or an audit, and return its path.

    Parameters
    ----------
    what : what `run`, `load_run` or `audit` returned, a folder of a run or an audit, or several runs
    out : the file; by default report.html in the one folder, fedsir-report.html here for several, report.html here for
        an audit that has no folder
    only, against, images, similarities, data_dir : for runs, as the options of `fedsir report`
    """
    several = [what] if isinstance(what, RunResult | AuditResult | Path | str) else list(what)
    if len(several) == 1 and isinstance(several[0], AuditResult):
        return several[0].report(PAGE if out is None else out)
    folders = []
    for each in several:
        if isinstance(each, AuditResult) or (not isinstance(each, RunResult) and is_audit(Path(each))):
            if len(several) > 1:
                raise ReportError("An audit has a page of its own: name it alone.")
            return audit_page(Path(each), None if out is None else Path(out))  # type: ignore[arg-type]
        folders.append(each.folder if isinstance(each, RunResult) else Path(each))
    return write_page_of_runs(
        folders, out, only=only, against=against, images=images, similarities=similarities, data_dir=data_dir
    ).path


def is_audit(folder: Path) -> bool:
    """Whether an audit has written this folder."""
    return (folder / "audit.json").is_file()


def audit_page(folder: Path, out: Path | None) -> Path:
    """Return the page that the audit has written, or a copy of it.

    It is not made again: an audit's folder keeps counts that may be shared, and no sample, so a page made from these
    would say less.
    """
    page = AuditFolder(folder).path / PAGE
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise ReportError(f"{page} is missing or damaged: run the audit again.") from None
    if out is None or out.resolve() == page.resolve():
        return page
    refuse_target(out)
    return write_page(out, text)
