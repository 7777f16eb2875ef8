"""Checks the options that a strategy is bound with, and fills in its defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import get_args

from serde_lab.errors import OptionError
from serde_lab.serde.interface import Integrity, SerdeOptions, Strategy

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
