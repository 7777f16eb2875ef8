"""Factors of `[shapes]` as scenarios: the middle, one point for each other value, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.scenario.identity import asked, data_hash
from serde_lab.scenario.loading import load_scenario, parse_scenario, sweep_points
from serde_lab.scenario.sections import ShapesData
from serde_lab.scenario.sweep import MIDDLE

SCENARIO = load_scenario("shapes")


def test_each_value_of_a_factor_is_a_point_and_the_middle_is_one() -> None:
    assert SCENARIO.shapes is not None
    points = sweep_points(SCENARIO)
    assert [point.mark for point in points[:4]] == [MIDDLE, "width-5", "width-100", "width-300"]
    factors = SCENARIO.shapes.factors
    assert len(points) == 1 + sum(len(factor.values) - 1 for factor in factors)
    assert len({point.mark for point in points}) == len(points)


def test_a_point_differs_from_the_middle_in_its_factor_alone() -> None:
    assert SCENARIO.shapes is not None
    middle, *others = sweep_points(SCENARIO)
    content = middle.scenario.to_json()
    for point in others:
        (factor,) = (one for one in SCENARIO.shapes.factors if one.name == point.factor)
        changed = {
            f"{section}.{key}"
            for section in ("data", "table")
            for key, value in point.scenario.to_json()[section].items()
            if value != content[section][key]
        }
        for place, batch in (("commit", 0), ("setup", 0)):
            new, old = point.scenario.to_json()[place][batch], content[place][batch]
            changed |= {f"{place}.1.{key}" for key in new if new[key] != old[key]}
        assert changed == {factor.key, *factor.also}
        measure = {**content["measure"], "rounds": point.scenario.measure.rounds}
        assert point.scenario.to_json()["measure"] == measure
    assert len({data_hash(point.scenario) for point in others}) == len(others)


def test_all_arms_measure_the_ends_and_few_what_is_between() -> None:
    arms = {point.mark: point.arms(SCENARIO.arms) for point in sweep_points(SCENARIO)}
    few = {mark for mark, found in arms.items() if len(found) == 2}
    assert few == {
        "width-100", "strings-0.5", "nesting-structs", "nesting-lists", "decimals-0.4", "keys-uuid",
        "partitions-100", "skew-bucket",
        "updates-0.05", "rows-10000", "rows-1000000",
    }  # fmt: skip
    assert [arm.name for arm in arms["width-100"]] == ["internal_row@width-100", "arrow@width-100"]
    assert all(len(found) == 5 for mark, found in arms.items() if mark not in few)


def test_values_whose_cells_take_long_have_fewer_rounds() -> None:
    rounds = {point.mark: point.scenario.measure.rounds for point in sweep_points(SCENARIO)}
    few = {"partitions-3000", "rows-3000000"}
    assert {mark for mark, number in rounds.items() if number == 2} == few
    assert {number for mark, number in rounds.items() if mark not in few} == {3}
    once = load_scenario("shapes", ["measure.rounds=1"])
    assert {point.scenario.measure.rounds for point in sweep_points(once)} == {1}


def test_the_factors_are_those_that_the_title_names() -> None:
    values = {
        factor.name: factor.values
        for factor in (SCENARIO.shapes.factors if SCENARIO.shapes else ())
    }
    assert values["width"] == (5, 20, 100, 300)
    assert values["string_bytes"] == (8, 80, 2000)
    assert values["partitions"] == (1, 100, 3000)
    assert (values["rows"][0], values["rows"][-1]) == (1000, 3_000_000)
    assert isinstance(SCENARIO.data, ShapesData)


def changed(**shapes: Any) -> str:
    document = SCENARIO.to_json()
    factor = {"name": "width", "key": "data.columns", "values": [5, 20]}
    document["shapes"] = {"factor": [factor | shapes.pop("factor", {})], **shapes}
    with pytest.raises(ScenarioError) as refused:
        parse_scenario(document)
    return str(refused.value)


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"between": ["arow"]}, "shapes.between: there is no arm 'arow'"),
        ({"factor": {"values": [5, 300]}}, "shapes.factor.width.values: lacks the middle:"
         " data.columns is 20 in the file"),
        ({"factor": {"values": [20]}}, "shapes.factor.width.values: has 1, expected at least 2"),
        ({"factor": {"values": [20, 20]}}, "shapes.factor.width.values: has a value twice"),
        ({"factor": {"key": "data.column"}}, "lacks the middle: data.column is nothing in the file"),
        ({"factor": {"key": "measure.rounds"}}, "'measure.rounds' changes nothing that is measured"),
        ({"factor": {"values": [1, 20]}}, "columns: found 1, expected a number from 2"),
        ({"factor": {"also": {"table.buckets": [1]}}}, "gives 'table.buckets' 1 values, but"),
        ({"factor": {"also": {"table.buckets": [1, 4]}}},
         "gives 'table.buckets' 4 in the middle, but the file has 8"),
        ({"factor": {"rounds": [3]}},
         "shapes.factor.width.rounds: has 1 numbers, but 'data.columns' has 2"),
        ({"factor": {"rounds": [3, 0]}}, "found 0, expected a number from 1"),
        ({"factor": {"name": "a b"}}, "expected letters, digits"),
    ],
)  # fmt: skip
def test_a_factor_that_cannot_be_is_refused_by_its_key(shapes: dict[str, Any], said: str) -> None:
    assert said in changed(**shapes)


def test_two_factors_of_one_name_are_refused() -> None:
    factor = {"name": "width", "key": "data.columns", "values": [5, 20]}
    document = {**SCENARIO.to_json(), "shapes": {"factor": [factor, factor]}}
    with pytest.raises(ScenarioError, match="2 factors are called 'width'"):
        parse_scenario(document)


@pytest.mark.parametrize(
    ("section", "value", "said"),
    [
        ("sweep", {"key": "data.rows", "values": [1, 2]}, "cannot be combined with"),
        ("stream", {}, "shapes: cannot be combined with stream"),
        ("data", {"source": "tpch", "table": "part", "scale_factor": 1}, "shapes: needs"),
    ],
)
def test_what_shapes_cannot_be_beside_is_refused(section: str, value: Any, said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse_scenario({**SCENARIO.to_json(), section: value})
    assert said in str(refused.value)


def test_shapes_survive_being_written_down_and_count_as_asked() -> None:
    assert parse_scenario(SCENARIO.to_json()) == SCENARIO
    assert asked(SCENARIO)["shapes"]["between"] == ["internal_row", "arrow"]
