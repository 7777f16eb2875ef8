"""Writes and reads append-only files of JSON lines, so that a kill loses at most the line being written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from serde_lab.errors import RunError, StorageError


class LineWriter:
    """Appends one JSON object per line, flushed to the operating system at once.

    Lines survive the death of this process. With `sync`, each line also reaches the disk before `append`
    returns, which costs milliseconds and survives a power cut.
    """

    def __init__(self, path: Path, *, sync: bool = False) -> None:
        self.path = path
        self._sync = sync
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def append(self, value: Mapping[str, object]) -> None:
        """Write one line. Raises RunError if the value is not JSON (NaN and infinity are not)."""
        try:
            line = json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n"
        except (TypeError, ValueError) as exc:
            raise RunError(f"{self.path}: cannot store {value!r}: {exc}") from exc
        # one unbuffered write, so that a kill leaves at most a prefix of one line
        data = memoryview(line.encode(errors="backslashreplace"))
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as exc:
            raise StorageError(f"{self.path} cannot be written: {exc.strerror}") from exc
        if self._sync:
            self.sync()

    def sync(self) -> None:
        """Make the appended lines survive a power cut."""
        os.fsync(self._file.fileno())

    def fileno(self) -> int:
        """The file descriptor, used for locking."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._file.close()


def read_lines(path: Path, messages: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers, from 1, and objects. An incomplete last line is dropped with a message.

    Raises RunError naming file and line if any other line is damaged.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    except OSError as exc:
        raise RunError(f"{path} cannot be read: {exc}") from exc
    if lines[-1] == b"":
        lines.pop()
    for number, line in enumerate(lines, 1):
        value = _parse(line)
        if value is None:
            if number == len(lines):
                messages.append(f"{path}: the last line ({number}) is torn and was dropped")
                return
            raise RunError(
                f"{path}, line {number} is damaged: expected one JSON object,"
                f" found {line[:60].decode(errors='replace')!r}"
            )
        yield number, value


def drop_torn_tail(path: Path) -> None:
    """Remove an incomplete last line, or end a complete one, so that appending starts on a new line."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    if not data:
        return
    # a last line without its line feed may be complete: no prefix of an object is valid JSON
    start = data.rstrip(b"\n").rfind(b"\n") + 1
    if _parse(data[start:].rstrip(b"\n")) is None:
        os.truncate(path, start)
    elif not data.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
