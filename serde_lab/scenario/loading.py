"""Reads a scenario: loads the file, applies overrides, checks each key, then checks combinations of keys.

Every fault becomes a ScenarioError that names file and key.
"""

from __future__ import annotations

import glob
import json
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from serde_lab.errors import ScenarioError
from serde_lab.files import is_utf8
from serde_lab.scenario.consistency import check
from serde_lab.scenario.model import Scenario
from serde_lab.scenario.problems import (
    Problem,
    comma_separated,
    dotted,
    of_validation,
    refuse,
    suggestion,
)
from serde_lab.scenario.sweep import (
    MOST_PARTS,
    SweepPoint,
    apply_overrides,
    parse_override,
    points_of,
    sweep_problems,
    with_shared_keys,
)

_PACKAGE = Path(__file__).resolve().parent.parent
_MOST_BYTES = 1 << 20


def load_scenario(
    what: str,
    overrides: Iterable[str] | Mapping[str, object] = (),
    folder: Path | None = None,
) -> Scenario:
    """The scenario with the name or path `what`.

    `overrides` are `key=value` texts, or values by their dotted keys. A relative `path` in the file is
    relative to the file's folder. Raises ScenarioError.
    """
    file = find_scenario(what, folder)
    raw = _resolved(_read(file), file.parent)
    pairs = (
        list(overrides.items())
        if isinstance(overrides, Mapping)
        else [parse_override(text) for text in overrides]
    )
    return parse_scenario(apply_overrides(raw, pairs), str(file), default_name=file.stem)


def _read(file: Path) -> dict[str, Any]:
    """The TOML document of a file, with or without a byte order mark. Raises ScenarioError."""
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ScenarioError(
                f"{file}: is larger than {_MOST_BYTES:,} bytes, which no scenario is"
            )
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as exc:
        raise ScenarioError(f"{file}: is not text in UTF-8, at byte {exc.start}") from exc
    except OSError as exc:
        raise ScenarioError(f"{file}: cannot be read: {exc}") from exc
    for number, line in enumerate(text.splitlines(), start=1):
        # tomllib takes minutes for a key of 50,000 parts
        if line.partition("=")[0].count(".") > MOST_PARTS:
            raise ScenarioError(f"{file}: line {number} has a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ScenarioError(f"{file}: is not valid TOML: {exc}") from exc
    except RecursionError as exc:
        raise ScenarioError(f"{file}: is not valid TOML: its values are nested too deeply") from exc
    except ValueError as exc:  # Python's limit of 4,300 digits
        raise ScenarioError(f"{file}: is not valid TOML: a number has thousands of digits") from exc


def parse_scenario(
    raw: Mapping[str, Any], source: str = "scenario", default_name: str | None = None
) -> Scenario:
    """The scenario in a parsed TOML document; every error message begins with `source`."""
    content = _with_defaults(raw, default_name)
    strange = list(_not_json(content, ()))
    if strange:
        raise refuse(source, [Problem(dotted(loc, content), clause) for loc, clause in strange])
    try:
        # through JSON: pydantic then takes arrays for tuples, as in TOML, and types stay strict
        scenario = Scenario.model_validate_json(json.dumps(content))
    except ValidationError as exc:
        raise refuse(source, of_validation(exc, content)) from exc
    problems = list(check(scenario)) or list(sweep_problems(scenario, parse_scenario))
    if problems:
        raise refuse(source, problems)
    return scenario


def sweep_points(scenario: Scenario) -> tuple[SweepPoint, ...]:
    """The scenario of each value of `[sweep]`; only the scenario itself if there is no sweep."""
    return points_of(scenario, parse_scenario)


def _with_defaults(raw: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """Add defaults that depend on other keys, so that results show their values."""
    content = with_shared_keys(raw)
    if name is not None:
        content.setdefault("name", name)
    arms = content.get("arm")
    if not isinstance(arms, list) or not all(isinstance(arm, dict) for arm in arms):
        return content
    if arms and "name" in arms[0]:
        content.setdefault("reference", arms[0]["name"])
    strategies = [arm["name"] for arm in arms if arm.get("strategy") and "name" in arm]
    if strategies:
        named = content.get("reference")
        frames_of = named if named in strategies else strategies[0]
        content["arm"] = [
            {"frames_of": frames_of, **arm} if arm.get("control") == "exchange_only" else arm
            for arm in arms
        ]
    return content


@dataclass(frozen=True, slots=True)
class Listed:
    """A scenario in a folder; `problem` says why it cannot run, or is ""."""

    name: str
    title: str
    path: Path
    problem: str = ""


def list_scenarios(folder: Path | None = None) -> list[Listed]:
    """Every scenario of the folder, including broken ones, so that one of them does not hide the rest."""
    found = []
    for file in scenario_files(scenario_folder(folder)):
        try:
            scenario = load_scenario(str(file))
        except ScenarioError as exc:
            found.append(Listed(file.stem, f"(cannot be read: {exc.message})", file, exc.message))
        else:
            found.append(Listed(file.stem, scenario.title, file))
    return found


def _resolved(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`raw` with relative data paths resolved against `folder`, the folder of the scenario file."""
    changed = dict(raw)
    if isinstance(raw.get("data"), dict):
        changed["data"] = _with_path(raw["data"], folder)
    for key, resolve in (("setup", _with_path), ("commit", _with_path), ("dataset", _resolved)):
        if isinstance(raw.get(key), list):
            changed[key] = [
                resolve(entry, folder) if isinstance(entry, dict) else entry for entry in raw[key]
            ]
    return changed


def _with_path(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    path = table.get("path")
    if not isinstance(path, str) or not path:
        return table
    whole = folder / path
    if not os.path.exists(whole):  # noqa: PTH110 - False for any text that is no path
        # `path` may be a pattern, but its folder is none, whatever characters its name has
        whole = Path(glob.escape(str(folder)), path)
    return {**table, "path": str(whole)}


def _not_json(
    value: object, loc: tuple[int | str, ...]
) -> Iterable[tuple[tuple[int | str, ...], str]]:
    """Finds values that no key takes: TOML's dates and times, infinite, NaN and very large numbers, and
    paths in a folder whose name is not UTF-8.

    None cannot come from a file; in a dumped scenario it means that a key was not given.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_json(inner, (*loc, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _not_json(inner, (*loc, i))
    elif isinstance(value, float) and value - value != 0:
        yield loc, f"found {value}, expected a finite number"
    elif isinstance(value, int) and value.bit_length() > 63:
        yield loc, f"found {value}, expected a number of 64 bits"
    elif isinstance(value, str) and not is_utf8(value):
        yield loc, f"found {value!r}, which is not UTF-8"
    elif not isinstance(value, str | int | float | bool | None):
        yield loc, f"found {value}, a {type(value).__name__}, which no key accepts"


def scenario_folder(folder: Path | None = None) -> Path:
    """The folder of scenarios: `folder`, else the one in the package, else the checkout's.

    Raises ScenarioError if `folder` is not a folder.
    """
    if folder is not None:
        if not folder.is_dir():
            raise ScenarioError(f"{folder}: is not a folder; expected a folder with scenario files")
        return folder
    bundled = _PACKAGE / "_scenarios"
    return bundled if bundled.is_dir() else _PACKAGE.parent / "scenarios"


def find_scenario(what: str, folder: Path | None = None) -> Path:
    """The scenario file with the name or path `what`; a path has a separator or ends in `.toml`.

    Raises ScenarioError with the known names.
    """
    if what.endswith(".toml") or "/" in what or os.sep in what:
        path = Path(what)
        if path.is_dir():
            raise ScenarioError(f"{path}: is a folder, expected a scenario file")
        if not path.is_file():
            raise ScenarioError(f"{path}: no such file")
        return path
    where = scenario_folder(folder)
    path = where / f"{what}.toml"
    if what and path.is_file():
        return path
    names = [file.stem for file in scenario_files(where)]
    near = suggestion(what, names)
    raise ScenarioError(
        f"there is no scenario {what!r} in {where}; known are {comma_separated(names)}{near}",
        "a path ends in .toml",
    )


def scenario_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.toml"))
