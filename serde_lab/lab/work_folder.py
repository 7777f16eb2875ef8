"""Provides the folder in which a run works: tables, logs and Spark's own files, removed when the run ends.

If a run is killed, the next run removes its folder.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from serde_lab.errors import UsageError

_PREFIX, _LOCK = "serde_lab-", ".lock"
_UNREADABLE = re.compile(r"[\x00-\x1f\x7f?\\]")


@contextmanager
def work_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a new folder in `parent`, by default the system's folder for temporary files.

    A lock marks it as used; the kernel releases the lock when the process ends, however that happens.
    """
    above = Path(tempfile.gettempdir()) if parent is None else parent
    check_work(above)
    above.mkdir(parents=True, exist_ok=True)
    remove_abandoned(above)
    with (
        tempfile.TemporaryDirectory(
            prefix=_PREFIX, dir=above, ignore_cleanup_errors=True
        ) as folder,
        (Path(folder) / _LOCK).open("w") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield Path(folder)


def check_work(parent: Path | None) -> None:
    """Raise UsageError for a folder with a name that hudi-rs or DuckDB cannot open."""
    found = _UNREADABLE.search(str(parent or ""))
    if found is not None:
        raise UsageError(
            f"--work: the path {str(parent)!r} has the character {found[0]!r}, with which DuckDB or hudi-rs"
            " cannot open files"
        )


def remove_abandoned(above: Path) -> None:
    """Remove the folders in `above` left behind by runs that were killed."""
    for lock_file in above.glob(f"{_PREFIX}*/{_LOCK}"):
        # skipped: removed meanwhile, another user's, or of a run that is still alive
        with suppress(OSError), lock_file.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock_file.parent, ignore_errors=True)
