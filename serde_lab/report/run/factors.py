"""Finds the factors in which two arms differ: representation, execution, framing, integrity, topology, table.

Only a step that changes one factor has a single cause.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from serde_lab.report import notation
from serde_lab.report.run.facts import ArmFacts

_FRAMING = ("rows_per_frame", "max_frame_bytes")
_COMMON = frozenset({"execution", "integrity", "topology", *_FRAMING})


@dataclass(frozen=True, slots=True)
class Difference:
    """One factor in which two arms differ, with a description of the change."""

    factor: str
    words: str


def differences(before: ArmFacts, after: ArmFacts) -> tuple[Difference, ...]:
    """Every factor in which `after` differs from `before`; a peer or a control differs as a whole."""
    if before.kind != "strategy" or after.kind != "strategy":
        return (Difference("the whole arm", f"{before.name} to {after.name}"),)
    one, other = before.options, after.options
    found = []
    if _representation(before) != _representation(after):
        words = f"{_said(before)} to {_said(after)}"
        found.append(Difference("representation", words))
    # an option that is not recorded has the strategy's own default
    same_strategy = before.strategy == after.strategy
    for factor, keys in (
        ("execution", ("execution",)),
        ("framing", _FRAMING),
        ("integrity", ("integrity",)),
        ("topology", ("topology",)),
    ):
        changed = [key for key in keys if one.get(key) != other.get(key)]
        unknown = [key for key in keys if key not in one and key not in other]
        if changed:
            words = ", ".join(_changed(key, one, other) for key in changed)
            found.append(Difference(factor, words))
        elif factor == "execution" and unknown and not same_strategy:
            found.append(Difference(factor, "not recorded: each strategy's own default"))
    if before.table != after.table:
        words = f"{_files(before) or 'as [table] says'} to {_files(after) or 'as [table] says'}"
        found.append(Difference("table", words))
    return tuple(found)


def options_in_words(arm: ArmFacts) -> str:
    """The strategy and its options in one line: internal_row · batch · 1,000 a frame."""
    if arm.kind != "strategy":
        return " · ".join(part for part in (arm.kind, _files(arm)) if part)
    options = arm.options
    parts = [arm.strategy]
    if options.get("execution"):
        parts.append(str(options["execution"]))
    if "rows_per_frame" in options:
        parts.append(_framing(options["rows_per_frame"]))
    if options.get("integrity") not in (None, "none"):
        parts.append(str(options["integrity"]))
    if options.get("topology"):
        parts.append(str(options["topology"]))
    parts += [f"{key}={value}" for key, value in options.items() if key not in _COMMON]
    parts.append(_files(arm))
    return " · ".join(part for part in parts if part)


def _files(arm: ArmFacts) -> str:
    return ", ".join(str(value) for value in arm.table.values())


def _representation(arm: ArmFacts) -> tuple[object, ...]:
    own = {key: value for key, value in arm.options.items() if key not in _COMMON}
    return arm.strategy, tuple(sorted((key, repr(value)) for key, value in own.items()))


def _said(arm: ArmFacts) -> str:
    own = [f"{key}={value}" for key, value in arm.options.items() if key not in _COMMON]
    return f"{arm.strategy} ({', '.join(own)})" if own else arm.strategy


def _changed(key: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    if key == "rows_per_frame":
        return f"{_framing(one.get(key))} to {_framing(other.get(key))}"
    words = f"{_value(one.get(key))} to {_value(other.get(key))}"
    return words if key in ("execution", "integrity", "topology") else f"{key} {words}"


def _framing(rows: object) -> str:
    if rows == 0:
        return "whole batch a frame"
    if isinstance(rows, int):
        return f"{notation.plural(rows, 'record')} a frame"
    return "default framing"


def _value(value: object) -> str:
    return "default" if value in (None, "") else str(value)
