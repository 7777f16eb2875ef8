"""Sweeps, key ranges and codec runs as scenarios: what loads, and what is refused."""

from __future__ import annotations

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.scenario.identity import asked, asked_of, data_hash
from serde_lab.scenario.loading import list_scenarios, load_scenario, parse_scenario, sweep_points
from serde_lab.scenario.model import TpchData


def test_each_value_is_a_scenario_of_its_own() -> None:
    scale = load_scenario("scale")
    points = sweep_points(scale)
    assert [point.value for point in points] == [0.1, 0.3, 1, 3, 10]
    for point in points:
        assert isinstance(point.scenario.data, TpchData)
        assert point.scenario.data.scale_factor == point.value
        assert point.scenario.sweep is None
    assert [arm.name for arm in points[1].arms(scale.arms)] == ["internal_row@0.3", "arrow@0.3"]
    assert [arm.name for arm in points[4].arms(scale.arms[1:])] == ["arrow@10"]


def test_without_a_sweep_there_is_one_point_with_the_arms_as_they_are() -> None:
    smoke = load_scenario("smoke")
    (point,) = sweep_points(smoke)
    assert (point.scenario, point.value) == (smoke, None)
    assert point.arms(smoke.arms) == smoke.arms


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["sweep.key=data.scael", "sweep.values=[1, 2]"], "data.scael: is an unknown key"),
        (["sweep.key=data.scale_factor", "sweep.values=[-1, 1]"], "expected a number above 0"),
        (["sweep.key=data.scale_factor", "sweep.values=[1, 1]"], "not in rising order"),
        (["sweep.key=data.scale_factor", "sweep.values=[]"], "is empty"),
        (["sweep.key=commit.1.rows", "sweep.values=[1000001, 1000002]", "commit=[{rows=1}]"],
         "2 values would be called '1e+06'"),
        (["sweep.key=data.scale_factor", "sweep.values=[1, 2]",
          "sweep.also={'data.scale_factor'=[3, 4]}"], "gives 'data.scale_factor' other values"),
        (["arm.arrow.up_to=9"], "arm.arrow.up_to: has no effect without [sweep]"),
        (["sweep.key=gate.alpha", "sweep.values=[0.1, 0.2]"], "changes nothing that is measured"),
        (["sweep.key=table.buckets", "sweep.values=[1, 1.5]"], "expected a whole number"),
        (["data.key_range=third"], "a bulk_insert would store keys twice"),
        (["data.key_range=half"], "expected one of whole, third"),
        (["data.table=orders", "data.key_range=third"], "needs table lineitem"),
        (["measure.exchange=none"], "every arm must be a strategy"),
        (["codec.types=[\"int46\"]"], "did you mean 'int64'?"),
        (["codec.string_shares=[1.5]"], "expected a number up to 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_key(overrides: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_scenario("smoke", overrides)
    assert said in str(refused.value)


KEYLESS = (
    *(
        "data.keyless=true",
        "commit=[{operation = 'insert'}]",
        "gate={}",
        "reference=arrow",
        "table={}",
    ),
    "arm=[{name = 'arrow', strategy = 'arrow', merging = {}}]",
)


@pytest.mark.parametrize("name", [one.name for one in list_scenarios()])
def test_a_scenario_survives_being_written_down(name: str) -> None:
    scenario = load_scenario(name)
    assert parse_scenario(scenario.to_json()) == scenario


def test_rows_without_keys_can_be_swept_and_written_down() -> None:
    scenario = load_scenario("smoke", KEYLESS)
    assert parse_scenario(scenario.to_json()) == scenario
    swept = ["sweep.key=data.scale_factor", "sweep.values=[1, 2]"]
    assert len(sweep_points(load_scenario("smoke", [*KEYLESS, *swept]))) == 2


def test_scenarios_of_before_ask_what_they_asked() -> None:
    # neither a new table nor a new key with its default makes kept data or a baseline stale
    smoke = load_scenario("smoke")
    old = smoke.to_json()
    del old["codec"], old["sweep"], old["data"]["key_range"]
    assert asked(parse_scenario(old)) == asked(smoke)
    del old["table"]["delete_field"], old["table"]["time_folders"], old["arm"][0]["merging"]
    assert asked_of(old) == asked(smoke)
    assert asked_of(old | {"table": {**old["table"], "delete_field": "gone"}}) != asked(smoke)
    assert asked(load_scenario("smoke", ["codec.widths=[3]"])) == asked(smoke)
    swept = ["sweep.key=data.seed", "sweep.values=[1, 2]"]
    assert asked(load_scenario("smoke", swept)) != asked(smoke)
    third = load_scenario("rfc84")
    whole = load_scenario("rfc84", ["data.key_range=whole"])
    assert data_hash(third) != data_hash(whole)


def test_rfc84_is_what_the_rfc_measured() -> None:
    scenario = load_scenario("rfc84")
    assert isinstance(scenario.data, TpchData)
    assert (scenario.data.scale_factor, scenario.data.key_range) == (10, "third")
    assert scenario.data.record_key == ("l_orderkey", "l_linenumber")
    assert (scenario.table.type, scenario.table.index) == ("MERGE_ON_READ", "BUCKET")
    assert scenario.table.buckets == 8
    assert [arm.strategy for arm in scenario.arms] == ["avro", "internal_row"] * 4
    assert [arm.topology.name for arm in scenario.arms if arm.topology] == [
        *["consistent"] * 2,
        *["state"] * 2,
    ]
