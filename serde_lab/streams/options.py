"""Parses the options of a stream: its own, and those that it passes on to every write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.pipeline.options.service import CONCURRENCY_MODE, LOCK_WAIT
from serde_lab.pipeline.write import SPANNING
from serde_lab.records.operation import Operation

OPERATION = "hoodie.datasource.write.operation"
IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
TAKES_OVER = "serde_lab.stream.takes_over"
BATCHES_PER_COMMIT = "serde_lab.stream.batches_per_commit"
COMMIT_INTERVAL = "serde_lab.stream.commit_interval_ms"
COMMIT_BYTES = "serde_lab.stream.commit_bytes"
DEFAULT_IDENTIFIER = "default_single_writer"

_MEANING: Mapping[str, str] = {
    IDENTIFIER: (
        "the name under which commits note a query's batches; each query of a table needs its own"
        f" ({DEFAULT_IDENTIFIER})"
    ),
    TAKES_OVER: (
        "true: another writer, such as Apache Hudi's sink, stored the batches before this stream's next one"
        " (false)"
    ),
    BATCHES_PER_COMMIT: (
        "micro-batches after which the instant that they share is committed (1; no limit if another is set)"
    ),
    COMMIT_INTERVAL: "milliseconds after which a shared instant is committed, also without rows (no limit)",
    COMMIT_BYTES: "bytes of files after which a shared instant is committed (no limit)",
    LOCK_WAIT: "milliseconds that a batch waits for another writer of the table (60000)",
}
_OPERATIONS = (Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """`write`: the options of every batch's write, under Hudi's names. A limit is None if there is none."""

    write: Mapping[str, Any]
    identifier: str = DEFAULT_IDENTIFIER
    takes_over: bool = False
    lock_wait_ms: int = 60_000
    batches_per_commit: int | None = 1
    commit_interval_ms: int | None = None
    commit_bytes: int | None = None

    @property
    def shares(self) -> bool:
        """Whether several batches may share an instant."""
        return self.batches_per_commit != 1

    @property
    def operation(self) -> str:
        return str(self.write.get(OPERATION, Operation.UPSERT)).strip()


def known_options() -> Mapping[str, str]:
    """The options that a stream accepts besides those of a write, with their meaning."""
    return _MEANING


def parse_stream_options(options: Mapping[str, Any]) -> StreamOptions:
    """Split `options`; those of the write are checked at each batch, when the table is known.

    Raises OptionError naming the option, what was found and what was expected.
    """
    reader = OptionReader({k: v for k, v in options.items() if k in _MEANING}, _MEANING)
    limits = {
        name: reader.number(name, 0, least=1) or None
        for name in (BATCHES_PER_COMMIT, COMMIT_INTERVAL, COMMIT_BYTES)
    }
    if not any(limits.values()):
        limits[BATCHES_PER_COMMIT] = 1
    mode = str(options.get(CONCURRENCY_MODE, "SINGLE_WRITER")).strip().upper()
    shared = {LOCK_WAIT} if mode != "SINGLE_WRITER" else set()
    parsed = StreamOptions(
        write={k: v for k, v in options.items() if k not in _MEANING or k in shared},
        identifier=reader.text(IDENTIFIER, DEFAULT_IDENTIFIER),
        takes_over=reader.flag(TAKES_OVER) or False,
        lock_wait_ms=reader.number(LOCK_WAIT, 60_000),
        batches_per_commit=limits[BATCHES_PER_COMMIT],
        commit_interval_ms=limits[COMMIT_INTERVAL],
        commit_bytes=limits[COMMIT_BYTES],
    )
    if not parsed.identifier:
        raise OptionError(f"{IDENTIFIER} is empty, expected a name")
    if parsed.operation not in _OPERATIONS:
        raise OptionError(
            f"{OPERATION} is {parsed.operation!r}, and a stream takes {', '.join(_OPERATIONS)}"
        )
    if parsed.shares and parsed.operation not in SPANNING:
        raise OptionError(
            f"{OPERATION} is {parsed.operation}, and batches that share a commit take {', '.join(SPANNING)}",
            hint=f"set {BATCHES_PER_COMMIT}=1",
        )
    if parsed.shares and shared:
        raise OptionError(
            f"{CONCURRENCY_MODE} is {mode}, and batches that share a commit need the table for themselves",
            hint=f"set {BATCHES_PER_COMMIT}=1",
        )
    return parsed
