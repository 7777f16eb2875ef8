"""Parses the options of a stream: its own, and those that it passes on to every write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.errors import OptionError
from serde_lab.pipeline.options.reader import OptionReader
from serde_lab.records.operation import Operation

OPERATION = "hoodie.datasource.write.operation"
IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"
TAKES_OVER = "serde_lab.stream.takes_over"
LOCK_WAIT = "hoodie.write.lock.wait_time_ms"
DEFAULT_IDENTIFIER = "default_single_writer"

_MEANING: Mapping[str, str] = {
    IDENTIFIER: (
        "the name under which commits note a query's batches; each query of a table needs its own"
        f" ({DEFAULT_IDENTIFIER})"
    ),
    TAKES_OVER: (
        "true: another writer, such as Apache Hudi's sink, stored the batches before this stream's next one"
    ),
    LOCK_WAIT: "milliseconds that a batch waits for another writer of the table (60000)",
}
_OPERATIONS = (Operation.UPSERT, Operation.INSERT, Operation.BULK_INSERT, Operation.DELETE)


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """`write`: the options of every batch's write, under Hudi's names."""

    write: Mapping[str, Any]
    identifier: str = DEFAULT_IDENTIFIER
    takes_over: bool = False
    lock_wait_ms: int = 60_000

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
    parsed = StreamOptions(
        write={key: value for key, value in options.items() if key not in _MEANING},
        identifier=reader.text(IDENTIFIER, DEFAULT_IDENTIFIER),
        takes_over=reader.flag(TAKES_OVER) or False,
        lock_wait_ms=reader.number(LOCK_WAIT, 60_000),
    )
    if not parsed.identifier:
        raise OptionError(f"{IDENTIFIER} is empty, expected a name")
    if parsed.operation not in _OPERATIONS:
        raise OptionError(
            f"{OPERATION} is {parsed.operation!r}, and a stream takes {', '.join(_OPERATIONS)}"
        )
    return parsed
