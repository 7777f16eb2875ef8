"""Writes files in one step, reads JSON as strictly as it is written, locks files between processes, and says
what standard output does not take."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NoReturn

from serde_lab.errors import RunError


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by a file with `data`; neither a reader nor a crash leaves half of it.

    A device or a pipe is written to, never replaced, and a link stays a link. Makes missing folders. Raises
    OSError.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = Path(os.path.realpath(path))
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def is_utf8(path: str | Path) -> bool:
    """Whether a path is text; pyarrow and DuckDB open files under no other names."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def read_json(path: Path) -> Any:
    """The value in a JSON file. Raises OSError, and ValueError in words for what is not JSON.

    NaN and infinity are not, and no file of the lab holds a whole number of more than 64 bits.
    """
    data = path.read_bytes()
    try:
        return json.loads(data, parse_constant=refuse_constant, parse_int=_whole)
    except json.JSONDecodeError as exc:
        raise ValueError(f"it is not JSON, at line {exc.lineno}: {exc.msg}") from exc
    except UnicodeDecodeError as exc:
        raise ValueError(f"it is not text in UTF-8, at byte {exc.start}") from exc
    except RecursionError as exc:
        raise ValueError("its values are nested too deeply") from exc


def read_versioned(path: Path, version: int) -> dict[str, Any]:
    """The object in a JSON file of the lab's whose `format_version` is `version`.

    Raises FileNotFoundError, and RunError if it cannot be read or has another version.
    """
    try:
        found = read_json(path)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as exc:
        raise RunError(f"{path} cannot be read: {exc}") from exc
    its = found.get("format_version") if isinstance(found, dict) else None
    if its != version:
        raise RunError(f"{path} has format_version {its!r}, and this serde_lab reads {version}")
    return dict(found)


def _whole(digits: str) -> int:
    if len(digits) > 20 or abs(int(digits)) >= 1 << 64:
        raise ValueError(f"a number has more than 64 bits: {digits[:25]}")
    return int(digits)


def refuse_constant(name: str) -> NoReturn:
    """What `json.loads` is to do with NaN and infinity, which Python writes and other readers refuse."""
    raise ValueError(f"{name} is not JSON")


@contextmanager
def alone_in(folder: Path, *, make: bool = False, wait: bool = True) -> Iterator[None]:
    """Keep other processes that ask for the same folder waiting, as long as the block lasts.

    Whoever reads a file, changes it and writes it again asks for its folder; `make` makes a missing one.
    Readers need not ask: files are replaced in one step. Raises RunError if the folder cannot be made or,
    without `wait`, if another process has it.
    """
    if make:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise RunError(f"{folder} cannot be made: {exc.strerror}") from exc
    with ExitStack() as stack:
        with suppress(OSError):  # there is no folder, or its file system has no locks
            # the folder itself, since a file for the lock would be committed with the others
            place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, place)
            if not lock_file(place, wait=wait):
                raise RunError(f"another process is writing to {folder}")
        yield


@contextmanager
def locked(folder: Path, waiting: str, say: Callable[[str], None]) -> Iterator[None]:
    """Lock `folder`, so that one process at a time uses it; `say` gets `waiting` if another one has it.

    For folders of a cache, in which a file for the lock may stay. The kernel releases the lock when the
    process ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if not lock_file(file):
            say(waiting)
            lock_file(file, wait=True)
        yield


def lock_file(file: IO[bytes] | IO[str] | int, *, shared: bool = False, wait: bool = False) -> bool:
    """Take the kernel's lock of an open file; False if another process holds it, unless `wait`.

    The kernel releases the lock when the file is closed or the process ends. `shared` locks exclude only
    exclusive ones. Raises OSError on a file system without locks.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(file, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def discard_output(stream: IO[str] | None) -> None:
    """Discard all further output of a stream, so that the command continues after a pipe was closed."""
    if stream is None:
        return
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


@contextmanager
def output_errors() -> Iterator[None]:
    """Names standard output in a write error, of which a closed pipe is none; discards what comes after."""
    try:
        yield
    except BrokenPipeError:
        discard_output(sys.stdout)
    except OSError as exc:
        discard_output(sys.stdout)
        raise OSError(exc.errno, exc.strerror, "standard output") from exc
