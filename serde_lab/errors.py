"""Defines every error that serde_lab raises on purpose, and the exit status of each.

    LabError                     1  the tool or its environment failed
     ├── SetupError              1  Java, Spark, a jar or a folder is missing
     ├── StorageError            1  the storage refused an operation, or answered too late
     ├── UsageError              2  the caller asked for something impossible or unsupported
     │    ├── ScenarioError      2  a scenario file: names file and key
     │    ├── OptionError        2  an option of a write, a strategy or a table
     │    ├── SchemaError        2  a column or type that table or strategy does not support
     │    └── DataError          2  data that cannot be written: a null key, a null ordering value
     ├── RunError                1  a run directory, baseline or history: missing, damaged, of another version
     ├── TableError              1  a Hudi table that is damaged, or of an unsupported kind
     │    └── ConcurrentWrite    1  another writer holds the table, or rolled this write back
     │         └── WriteConflict 1  another writer has committed what this write changes, too
     ├── DecodeError             1  bytes that are not a frame of this strategy and schema
     ├── WrongAnswer             4  a table's contents differ from the independent answer
     └── Interrupted           130  ctrl-C

A message is one sentence that names the file, key or column, what was found and what was
expected. An optional `hint` says what to do. Statuses 3 (a regression) and 5 (not decidable)
are outcomes, not errors: `serde_lab.gate` returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any


class LabError(Exception):
    """Root of all errors raised on purpose; `exit_status` is what the process returns."""

    exit_status = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[LabError], tuple[str, str | None]]:
        return type(self), (self.message, self.hint)


class SetupError(LabError):
    """Java, Spark, a jar, a folder or another prerequisite is missing."""


class StorageError(LabError):
    """The storage refused an operation, ran full, or answered too late."""


class UsageError(LabError):
    """The caller asked for something that is impossible or unsupported."""

    exit_status = 2


class ScenarioError(UsageError):
    """A scenario file with an unknown key, a wrong type or an impossible combination."""


class OptionError(UsageError):
    """An option that is unknown, unsupported or has an impossible value."""


class SchemaError(UsageError):
    """A column or a type that the table or the strategy does not support."""


class DataError(UsageError):
    """Values that cannot be written: a null record key, a null ordering value."""


class RunError(LabError):
    """A run directory, baseline or history that is missing, damaged or has another format version."""


class TableError(LabError):
    """A Hudi table that is damaged or of a kind that is not supported."""


class ConcurrentWrite(TableError):
    """Another writer holds the table, or has rolled this write back."""


class WriteConflict(ConcurrentWrite):
    """Another writer has committed what this write changes, too, since this one began."""


class DecodeError(LabError):
    """Bytes that are not a frame of this strategy and schema."""

    def __init__(self, strategy: str, record: int | None, problem: str) -> None:
        where = "frame" if record is None else f"record {record}"
        super().__init__(f"{strategy}: cannot decode {where}: {problem}")
        self.strategy, self.record, self.problem = strategy, record, problem

    def __reduce__(self) -> tuple[type[DecodeError], tuple[str, int | None, str]]:  # type: ignore[override]
        return type(self), (self.strategy, self.record, self.problem)


class WrongAnswer(LabError):
    """A table whose contents differ from the independent answer."""

    exit_status = 4


class PortabilityWarning(UserWarning):
    """The lab reads what was written correctly, but some Hudi version cannot read or extend it."""


class Interrupted(LabError):
    """The user pressed ctrl-C; everything measured so far is kept."""

    exit_status = 130


def reason_of(exc: BaseException) -> str:
    """The message of an error of ours; of any other its type and the first line of its text."""
    if isinstance(exc, LabError):
        return exc.message
    return f"{type(exc).__name__}: {(str(exc).strip().splitlines() or [''])[0]}"


def outcome_of(call: Callable[..., Any], *arguments: Any) -> tuple[bool, Any]:
    """Whether the call raised, and its result or error; errors become ours, which a pipe can carry."""
    try:
        return False, call(*arguments)
    except Exception as exc:  # a plug-in or Spark may raise anything
        return True, exc if isinstance(exc, LabError) else LabError(reason_of(exc))


WORST_FIRST = (130, 1, 2, 4, 3, 5, 0)


def worst(statuses: Iterable[int]) -> int:
    """The most severe of several exit statuses; 0 if there are none.

    The documented order is 1, 2, 4, 3, 5, 0. Ctrl-C (130) comes before all of them, since the work
    did not finish.
    """
    found = set(statuses)
    return next((status for status in WORST_FIRST if status in found), max(found, default=0))


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint with the known name that `name` resembles most; None if it resembles none."""
    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]!r}?" if close else None
