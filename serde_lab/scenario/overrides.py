"""Applies `--set key=value` to a scenario before it is checked, as if the file contained the value.

A key is dotted. An entry of an array is selected by its number from 1 or, if its tables have names, by
name: `data.scale_factor`, `commit.1.updates`, `arm.pickle.options.layout`. A value is TOML; a bare word
that is not TOML is taken as a text.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from serde_lab.errors import ScenarioError
from serde_lab.scenario.problems import listed, suggestion

_BARE_WORD = re.compile(r"[A-Za-z0-9_./*~-]+")


def parse_override(text: str) -> tuple[str, Any]:
    """Split `key=value` and read the value. Raises ScenarioError."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key or not value:
        raise ScenarioError(f"--set {text}: expected KEY=VALUE, such as measure.rounds=3")
    return key, _value(key, value)


def apply_overrides(raw: Mapping[str, Any], overrides: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A copy of `raw` with the values set; a later override replaces an earlier one.

    Raises ScenarioError for a key whose parent does not exist. Whether a new key is known is checked with
    the rest of the scenario.
    """
    changed = copy.deepcopy(dict(raw))
    for key, value in overrides:
        _set(changed, key, value)
    return changed


def _value(key: str, text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError) as exc:  # TOMLDecodeError is a ValueError
        if _BARE_WORD.fullmatch(text):
            return text
        raise ScenarioError(
            f"--set {key}: {text!r} is not a TOML value; expected for example 3, 0.5, true, "
            "'text' or ['a', 'b']"
        ) from exc
    if set(found) != {"value"}:
        raise ScenarioError(f"--set {key}: expected one value, found several lines")
    return found["value"]


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    steps = key.split(".")
    at: Any = raw
    for depth, step in enumerate(steps[:-1]):
        so_far = ".".join(steps[: depth + 1])
        if isinstance(at, list):
            at = at[_position(at, step, key)]
        elif isinstance(at, dict):
            # the file does not contain this table, so all its keys had their defaults
            at = at.setdefault(step, {})
        if not isinstance(at, list | dict):
            raise ScenarioError(f"--set {key}: {so_far} is {at!r} and has no keys")
    last = steps[-1]
    if isinstance(at, list):
        at[_position(at, last, key)] = value
    else:
        at[last] = value


def _position(entries: list[Any], step: str, key: str) -> int:
    names = [str(e["name"]) for e in entries if isinstance(e, dict) and "name" in e]
    if step in names:
        return names.index(step)
    if step.isdecimal() and 1 <= int(step) <= len(entries):
        return int(step) - 1
    there = f"1 to {len(entries)}" if entries else "nothing"
    if names:
        there += f" or {listed(names)}"
    raise ScenarioError(f"--set {key}: there is no {step!r}, only {there}{suggestion(step, names)}")
