"""Finds strategies by name, and checks the options that they are bound with.

Strategies come with the package or are plug-ins of installed distributions: entry points of the group
`serde_lab.strategies` (name -> `module:Class`). The package's own strategies need no entry points, so that a
checkout works without being installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import get_args

import pyarrow as pa

from serde_lab.errors import DecodeError, LabError, OptionError, SchemaError, SetupError, reason_of
from serde_lab.records.schema import EXAMPLES, RecordSchema
from serde_lab.serde.interface import BoundSerde, Integrity, SerdeOptions, Strategy

MAX_FRAME_BYTES = 1 << 30
"""Arrow limits a column of frames to 2 GiB, so a single frame must stay well below that."""
MAX_FRAME_ROWS = (1 << 31) - 1
"""Rows of a frame are counted in 32 bits."""


def resolve(
    strategy: Strategy, options: SerdeOptions, own: Mapping[str, Sequence[object]] | None = None
) -> SerdeOptions:
    """`options` with the defaults of `strategy` filled in.

    `own` maps each of the strategy's own keys to its allowed values, the default first.
    Raises OptionError naming strategy, option, value found and values expected.
    """

    def refuse(key: str, value: object, expected: str) -> OptionError:
        return OptionError(f"{strategy.name}: {key} = {value!r}, expected {expected}")

    execution = options.execution or strategy.executions[0]
    if execution not in strategy.executions:
        raise refuse("execution", execution, _one_of(strategy.executions))
    if not _is_count(options.rows_per_frame, 0) or options.rows_per_frame > MAX_FRAME_ROWS:
        expected = f"an integer in 0..{MAX_FRAME_ROWS}"
        raise refuse("rows_per_frame", options.rows_per_frame, expected)
    if not _is_count(options.max_frame_bytes, 1) or options.max_frame_bytes > MAX_FRAME_BYTES:
        expected = f"an integer in 1..{MAX_FRAME_BYTES}"
        raise refuse("max_frame_bytes", options.max_frame_bytes, expected)
    if options.integrity not in get_args(Integrity):
        raise refuse("integrity", options.integrity, _one_of(get_args(Integrity)))
    allowed = own or {}
    for key, value in options.own.items():
        if key not in allowed:
            known = ", ".join(allowed) or "none"
            raise OptionError(
                f"{strategy.name}: unknown option {key!r}, known options are: {known}"
            )
        if value not in allowed[key]:
            raise refuse(key, value, _one_of(allowed[key]))
    resolved = {key: options.own.get(key, values[0]) for key, values in allowed.items()}
    return replace(options, execution=execution, own=resolved)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _one_of(values: Sequence[object]) -> str:
    return " or ".join(repr(value) for value in values)


GROUP = "serde_lab.strategies"

BUILT_IN: Mapping[str, str] = {
    "pickle": "serde_lab.serde.pickle.records:PickleStrategy",
    "pickle_columns": "serde_lab.serde.pickle_columns.strategy:PickleColumnsStrategy",
    "avro": "serde_lab.serde.avro.records:AvroStrategy",
    "internal_row": "serde_lab.serde.internal_row.strategy:InternalRowStrategy",
    "arrow": "serde_lab.serde.arrow.records:ArrowStrategy",
}


def names() -> tuple[str, ...]:
    """The names of all known strategies: the package's own, then plug-ins by name."""
    plugins = {point.name for point in entry_points(group=GROUP)}
    return (*BUILT_IN, *sorted(plugins - set(BUILT_IN)))


@dataclass(frozen=True, slots=True)
class Description:
    """A strategy as `list --strategies` shows it; `problem` says why it cannot be used, else ""."""

    name: str
    origin: str
    executions: tuple[str, ...] = ()
    rows_per_frame: int = 0
    types: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def describe(name: str) -> Description:
    """What a strategy supports, found by binding it to a column of each type; `refused` has the errors."""
    try:
        target = _target(name)
        found = strategy(name)
        refused = {kind: why for kind in EXAMPLES if (why := _refusal(found, kind))}
        return Description(
            name,
            target.partition(":")[0],
            found.executions,
            found.default_rows_per_frame,
            tuple(kind for kind in EXAMPLES if kind not in refused),
            refused,
            dict(found.losses()),
        )
    except Exception as exc:  # a plug-in may raise anything, and must not keep others from the list
        why = exc.message if isinstance(exc, LabError) else f"{type(exc).__name__}: {exc}"
        return Description(name, "", problem=why)


def _refusal(found: Strategy, kind: str) -> str:
    columns = [pa.field("key", pa.string(), nullable=False), pa.field("value", EXAMPLES[kind])]
    try:
        found.bind(RecordSchema(pa.schema(columns), ("key",)), SerdeOptions())
    except SchemaError as exc:
        return exc.message
    return ""


@contextmanager
def named(subject: str) -> Iterator[None]:
    """Put `subject` into the message of whatever a strategy raises; a plug-in may raise anything.

    A LabError keeps its class; any other exception becomes a SetupError.
    """
    try:
        yield
    except DecodeError:  # already names its strategy
        raise
    except LabError as exc:
        raise type(exc)(f"{subject}: {exc.message}", exc.hint) from exc
    except Exception as exc:
        raise SetupError(f"{subject} raised {reason_of(exc)}") from exc


def strategy(name: str) -> Strategy:
    """The strategy called `name`.

    Raises OptionError for an unknown name or one that two distributions claim, SetupError if the
    strategy's module cannot be imported or does not hold the class that its entry point names.
    """
    target = _target(name)
    module_name, _, class_name = target.partition(":")
    try:
        found = getattr(import_module(module_name), class_name)
    except Exception as exc:  # a plug-in's module may raise anything
        reason = exc if isinstance(exc, ImportError | AttributeError) else repr(exc)
        raise SetupError(f"strategy {name!r} cannot be loaded from {target}: {reason}") from exc
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise SetupError(f"strategy {name!r}: {target} is not a subclass of {Strategy.__name__}")
    if found.name != name:
        raise SetupError(f"strategy {name!r}: {target} calls itself {found.name!r}")
    with named(f"strategy {name!r}"):
        return found()


def _target(name: str) -> str:
    return _target_on(name, tuple(sys.path))


@lru_cache(maxsize=256)
def _target_on(name: str, path: tuple[str, ...]) -> str:
    """Cached, since reading every distribution's entry points takes tens of milliseconds, and a worker
    binds its strategy once a task. `path` is the cache's key, since the answer depends on sys.path."""
    targets = {point.value for point in entry_points(group=GROUP, name=name)}
    if name in BUILT_IN:
        targets.add(BUILT_IN[name])
    if not targets:
        raise OptionError(f"unknown strategy {name!r}, expected one of {', '.join(names())}")
    if len(targets) > 1:
        raise OptionError(f"strategy {name!r} is claimed by {' and by '.join(sorted(targets))}")
    return targets.pop()


@dataclass(frozen=True, slots=True)
class StrategyRecords:
    """The records of a strategy under these options, for a merger that declares their type. Picklable."""

    strategy: str = "arrow"
    options: SerdeOptions = field(default_factory=SerdeOptions)

    @property
    def record_type(self) -> str:
        """The type that mergers declare: the strategy's name in capitals."""
        return self.strategy.upper()

    def bind(self, schema: RecordSchema) -> BoundSerde:
        """The strategy's SerDe for records of this schema."""
        return bind(self.strategy, schema, self.options)


def bind(name: str, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
    return strategy(name).bind(schema, options)
