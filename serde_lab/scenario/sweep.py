"""Expands a scenario: into its points, one for each value of a sweep or factor of `[shapes]`, and its tables.

It also names the arms of each point. The values are set as `--set key=value` sets them: before the scenario
is checked, as if the file contained them. A key is dotted. An entry of an array is selected by its number
from 1 or, if its tables have names, by name: `data.scale_factor`, `commit.1.updates`,
`arm.pickle.options.layout`. A value is TOML; a bare word that is not TOML is taken as a text.

The tables are that of `[data]`, then one for each `[[dataset]]`. Each is a scenario of one table with the
same arms, so that whatever works on one table works on each of them. A `[[dataset]]` shares with the file
what is said once for all tables: where rows come from, their scale, the kind of table, and the writes, if it
has none of its own.
"""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from serde_lab.errors import ScenarioError
from serde_lab.scenario.model import Arm, Scenario, TpchData
from serde_lab.scenario.problems import Problem, comma_separated, repeated, suggestion, unknown_arm
from serde_lab.scenario.sections import Shapes, ShapesData

_BARE_WORD = re.compile(r"[A-Za-z0-9_./*~-]+")


MOST_PARTS = 100
"""Of a key, in a file and in an override."""


def parse_override(text: str) -> tuple[str, Any]:
    """Split `key=value` and read the value. Raises ScenarioError."""
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not equals or not key or not value:
        raise ScenarioError(f"--set {text}: expected KEY=VALUE, such as measure.rounds=3")
    if key.count(".") > MOST_PARTS:
        raise ScenarioError(f"--set {key[:60]}…: is a key of more than {MOST_PARTS} parts")
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
        there += f" or {comma_separated(names)}"
    raise ScenarioError(f"--set {key}: there is no {step!r}, only {there}{suggestion(step, names)}")


MIDDLE = "middle"
"""The mark of the point at which every factor has the file's own value."""
_NOT_SWEPT = ("name", "title", "question", "reference", "sweep", "shapes", "gate")

Parse = Callable[[Mapping[str, Any], str], Scenario]


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One value with its scenario; `value` is None for a scenario without a sweep, and for the middle.

    `factor` is the factor of `[shapes]` that has the value, "" if there is none; `only` names the arms that
    measure the point, None for all. `of_shapes` says whether the point is one of `[shapes]`.
    """

    scenario: Scenario
    value: float | str | None = None
    factor: str = ""
    only: tuple[str, ...] | None = None
    of_shapes: bool = False

    @property
    def mark(self) -> str:
        """What tells the point from others in names: `0.3`, `width-300` or `middle`; "" if it is alone."""
        if self.of_shapes:
            return f"{self.factor}-{value_text(self.value)}" if self.factor else MIDDLE
        return value_text(self.value)

    def arm_name(self, arm: str) -> str:
        """The name of `arm` at this point, such as `arrow@0.3` or `arrow@width-300`."""
        return f"{arm}@{self.mark}" if self.mark else arm

    def swept(self, arm: str) -> dict[str, Any]:
        """What a run stores of `arm` at this point."""
        stored = {"arm": arm, "value": self.value}
        return {**stored, "factor": self.factor} if self.of_shapes else stored

    def arms(self, arms: Sequence[Arm]) -> tuple[Arm, ...]:
        """This point's versions of `arms`, with the names that they have here."""
        names = {arm.name for arm in arms if self._measures(arm)}
        return tuple(
            arm.model_copy(update={"name": self.arm_name(arm.name)})
            for arm in self.scenario.arms
            if arm.name in names
        )

    def _measures(self, arm: Arm) -> bool:
        if self.only is not None and arm.name not in self.only:
            return False
        numbered = isinstance(self.value, int | float) and not self.of_shapes
        return not numbered or arm.up_to is None or float(self.value or 0) <= arm.up_to


def value_text(value: object) -> str:
    """A value as names and tables show it; "" for None."""
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def points_of(scenario: Scenario, parse: Parse) -> tuple[SweepPoint, ...]:
    """The points in the order of their values; `parse` makes a scenario out of a document.

    Raises ScenarioError if a key does not exist or does not accept a value.
    """
    if scenario.shapes is not None:
        return tuple(_points_of_shapes(scenario, scenario.shapes, parse))
    if scenario.sweep is None:
        return (SweepPoint(scenario),)
    # a point is no sweep, where `up_to` would have no effect
    arms = [{**arm, "up_to": None} for arm in scenario.to_json()["arm"]]
    content = {**scenario.to_json(), "sweep": None, "arm": arms}
    key, also = scenario.sweep.key, scenario.sweep.also
    return tuple(
        SweepPoint(
            parse(
                apply_overrides(content, [(key, value), *((k, v[n]) for k, v in also.items())]),
                f"{key} = {value:g}",
            ),
            float(value),
        )
        for n, value in enumerate(scenario.sweep.values)
    )


def _points_of_shapes(scenario: Scenario, shapes: Shapes, parse: Parse) -> Iterator[SweepPoint]:
    content = {**scenario.to_json(), "shapes": None}
    yield SweepPoint(parse(content, MIDDLE), of_shapes=True)
    for factor in shapes.factors:
        middle = middle_of(content, factor.key)
        for place, value in enumerate(factor.values):
            if value == middle:
                continue
            settings = factor.settings(place)
            if factor.rounds:
                settings["measure.rounds"] = min(scenario.measure.rounds, factor.rounds[place])
            changed = parse(
                apply_overrides(content, settings.items()), f"{factor.key} = {value_text(value)}"
            )
            inside = 0 < place < len(factor.values) - 1
            only = shapes.between if shapes.between and inside else None
            yield SweepPoint(changed, value, factor.name, only, of_shapes=True)


def middle_of(content: Mapping[str, Any], key: str) -> Any:
    """The file's own value of a dotted key; None if there is none."""
    at: Any = content
    for step in key.split("."):
        if isinstance(at, list):
            named = next((one for one in at if one.get("name") == step), None)
            numbered = step.isdecimal() and 1 <= int(step) <= len(at)
            at = at[int(step) - 1] if named is None and numbered else named
        else:
            at = at.get(step) if isinstance(at, Mapping) else None
    return at


def sweep_problems(scenario: Scenario, parse: Parse) -> Iterator[Problem]:
    """Problems of `[sweep]` and `[shapes]`: keys, values, or a scenario that results from them."""
    if scenario.sweep is None:
        limited = [arm.name for arm in scenario.arms if arm.up_to is not None]
        found = [Problem(f"arm.{name}.up_to", "has no effect without [sweep]") for name in limited]
        if scenario.shapes is not None:
            found += _shapes_problems(scenario)
    else:
        found = list(_values_problems(scenario))
    yield from found
    if found or (scenario.sweep is None and scenario.shapes is None):
        return
    section = "shapes" if scenario.sweep is None else "sweep"
    try:
        points = points_of(scenario, parse)
    except ScenarioError as exc:
        yield Problem(section, exc.message)
        return
    for mark, times in repeated(point.mark for point in points):
        yield Problem(section, f"{times} values would be called {mark!r}, and so would their arms")


def _values_problems(scenario: Scenario) -> Iterator[Problem]:
    sweep = scenario.sweep
    assert sweep is not None
    key, values = sweep.key, sweep.values
    if scenario.shapes is not None:
        yield Problem("sweep", "cannot be combined with [shapes]")
        return
    for where, swept in (("key", key), *(("also", one) for one in sweep.also)):
        yield from _not_measured(f"sweep.{where}", swept)
    yield from _lengths("sweep", key, len(values), sweep.also)
    if any(later <= earlier for earlier, later in pairwise(values)):
        yield Problem("sweep.values", "are not in rising order")
        return
    for value in values:
        if not SweepPoint(scenario, float(value)).arms(scenario.arms):
            yield Problem("sweep.values", f"{value:g} is above `up_to` of every arm")
            return


def _not_measured(where: str, key: str) -> Iterator[Problem]:
    if key.split(".")[0] in _NOT_SWEPT or key.startswith("measure.rounds"):
        yield Problem(where, f"{key!r} changes nothing that is measured")


def _lengths(
    where: str, key: str, wanted: int, also: Mapping[str, Sequence[object]]
) -> Iterator[Problem]:
    for other, given in also.items():
        if other == key:
            yield Problem(f"{where}.also", f"gives {key!r} other values than `values` does")
        if len(given) != wanted:
            clause = f"gives {other!r} {len(given)} values, but {key!r} has {wanted}"
            yield Problem(f"{where}.also", clause)


def _shapes_problems(scenario: Scenario) -> Iterator[Problem]:
    """Problems of the factors: each starts from the middle, and has a name of its own."""
    shapes, content = scenario.shapes, scenario.to_json()
    assert shapes is not None
    if not isinstance(scenario.data, ShapesData):
        yield Problem("shapes", 'needs [data] source = "shapes"')
    for section, there in (("stream", scenario.stream), ("dataset", scenario.datasets or None)):
        if there is not None:
            yield Problem("shapes", f"cannot be combined with {section}")
    if scenario.measure.exchange == "none":
        yield Problem("shapes", 'needs tables, but measure.exchange is "none"')
    names = [arm.name for arm in scenario.arms]
    for name in shapes.between:
        yield from unknown_arm("shapes.between", name, names)
    for name, times in repeated(factor.name for factor in shapes.factors):
        yield Problem("shapes.factor", f"{times} factors are called {name!r}")
    for factor in shapes.factors:
        where = f"shapes.factor.{factor.name}"
        for key in (factor.key, *factor.also):
            yield from _not_measured(f"{where}.key", key)
        lengths = list(_lengths(where, factor.key, len(factor.values), factor.also))
        if factor.rounds and len(factor.rounds) != len(factor.values):
            clause = (
                f"has {len(factor.rounds)} numbers, but {factor.key!r} has {len(factor.values)}"
            )
            lengths.append(Problem(f"{where}.rounds", clause))
        yield from lengths
        if len(set(map(value_text, factor.values))) < len(factor.values):
            yield Problem(f"{where}.values", "has a value twice")
            continue
        middle = middle_of(content, factor.key)
        if middle not in factor.values:
            said = "nothing" if middle is None else repr(middle)
            yield Problem(
                f"{where}.values", f"lacks the middle: {factor.key} is {said} in the file"
            )
        elif not lengths:
            place = factor.values.index(middle)
            for key, given in factor.also.items():
                if given[place] != middle_of(content, key):
                    yield Problem(
                        f"{where}.also",
                        f"gives {key!r} {given[place]!r} in the middle, but the file has"
                        f" {middle_of(content, key)!r}",
                    )


_SHARED_DATA = ("source", "scale_factor", "input_partitions", "seed")
_OF_COLUMNS = (
    "bucket_fields", "hive_style", "url_encode", "time_folders", "delete_field", "delete_marker",
)  # fmt: skip
"""Keys of `[table]` that depend on a table's columns, and so are not shared."""


def with_shared_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A document whose datasets have the keys that they share with it; faults are left for the checks."""
    content = dict(raw)
    datasets = content.get("dataset")
    if isinstance(datasets, list):
        content["dataset"] = [
            _complete(one, content) if isinstance(one, Mapping) else one for one in datasets
        ]
    return content


def _complete(dataset: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    whole = dict(dataset)
    data, table = content.get("data"), content.get("table", {})
    own = whole.get("data")
    if isinstance(data, Mapping) and isinstance(own, Mapping):
        alike = own.get("source", data.get("source")) == data.get("source")
        shared = _SHARED_DATA if alike else ("input_partitions", "seed")
        whole["data"] = {key: data[key] for key in shared if key in data} | dict(own)
    own = whole.get("table", {})
    if isinstance(table, Mapping) and isinstance(own, Mapping):
        shared_table = {k: v for k, v in table.items() if k not in _OF_COLUMNS}
        whole["table"] = shared_table | dict(own)
    if "commit" not in whole:
        whole |= {key: content[key] for key in ("setup", "commit") if key in content}
    return whole


def first_table(scenario: Scenario) -> str:
    """The name of the table of `[data]`."""
    return scenario.data.table if isinstance(scenario.data, TpchData) else "data"


def tables_of(scenario: Scenario) -> dict[str, Scenario]:
    """Every table by name, as a scenario of one table, in the order in which cells write them."""
    first = first_table(scenario)
    if not scenario.datasets:
        return {first: scenario}
    alone = scenario.model_copy(update={"datasets": (), "queries": ()})
    found = {first: alone}
    for one in scenario.datasets:
        update = {
            "name": f"{scenario.name}.{one.name}",
            "data": one.data,
            "setups": one.setups,
            "timed": one.timed,
            "table": one.table,
        }
        found[one.name] = alone.model_copy(update=update)
    return found


def writes_several(scenario: Scenario) -> bool:
    """Whether its cells write several tables, or are asked queries."""
    return bool(scenario.datasets or scenario.queries)
