"""Identifies the code that measured and the code that was measured.

Each instrument of the measuring code has a hash: if it changes, earlier and later figures of that instrument
answer different questions and are not compared. The git commit is recorded beside them, since the judged code
may change freely.
"""

from __future__ import annotations

import hashlib
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from serde_lab.measure.instruments import instruments

_PACKAGE = Path(__file__).resolve().parent.parent


def code_version(exchange: str = "spark", package: Path = _PACKAGE) -> dict[str, Any]:
    """Package version, git commit (None outside a checkout), and the instruments of a run.

    `exchange` is the scenario's `measure.exchange`. `instruments` has the hash of each instrument that such a
    run uses, `measuring` one of them all, for readers that compare the measuring code as a whole.
    """
    used = instruments(exchange, package)
    whole = hashlib.sha256("\n".join(sorted(used.values())).encode()).hexdigest()[:16]
    return {
        "package": _package_version(),
        **_git(package),
        "measuring": whole,
        "instruments": used,
    }


def _package_version() -> str | None:
    try:
        return version("serde-lab")
    except PackageNotFoundError:
        return None


def _git(package: Path) -> dict[str, Any]:
    """Commit and cleanliness of the checkout that tracks `package`; empty for a wheel."""
    # a virtual environment may lie inside another project's checkout: ask for our own file
    if _run(package, "ls-files", "--error-unmatch", "errors.py") is None:
        return {"git_commit": None, "git_dirty": None}
    changed = _run(package.parent, "status", "--porcelain", "--", package.name, "tpch", "scenarios")
    return {
        "git_commit": (_run(package, "rev-parse", "HEAD") or "").strip() or None,
        "git_dirty": None if changed is None else bool(changed.strip()),
    }


def _run(folder: Path, *arguments: str) -> str | None:
    """The output of git; None if git fails, is missing or does not answer."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
