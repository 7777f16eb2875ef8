"""`[stream]`: micro-batches out of one commit, the services of both sides, and what cannot be a stream."""

from __future__ import annotations

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.lab.cells.peer_arms import options_of_peer
from serde_lab.lab.plan import Write, options_of, set_up_options
from serde_lab.scenario.identity import asked, data_hash
from serde_lab.scenario.loading import load_scenario, parse_scenario, sweep_points

ONE = ["sweep.values=[1000]", 'sweep.also={"stream.batches"=[7]}']
SERVICES = ("hoodie.compact.inline", "hoodie.clean.automatic", "hoodie.archive.automatic")


def test_each_size_has_its_number_of_batches_and_its_arms() -> None:
    stream = load_scenario("stream")
    points = sweep_points(stream)
    found = {
        point.value: (len(point.scenario.commits), point.scenario.commits[-1].rows)
        for point in points
    }
    assert found == {
        1000: (300, 1000), 10_000: (300, 10_000), 100_000: (30, 100_000), 1_000_000: (5, 1_000_000)
    }  # fmt: skip
    arms = [{arm.name for arm in point.arms(stream.arms)} for point in points]
    assert [len(names) for names in arms] == [14, 14, 14, 7]
    assert not any("cow" in name for name in arms[-1])
    assert {"pickle", "hudi_spark", "hudi_spark_tuned"} <= {n.split("@")[0] for n in arms[-1]}


def test_a_stream_survives_being_written_down() -> None:
    scenario = load_scenario("stream")
    assert parse_scenario(scenario.to_json()) == scenario


def test_more_batches_are_other_data_and_another_question() -> None:
    (one,), (other,) = (
        sweep_points(load_scenario("stream", [*ONE[:1], f'sweep.also={{"stream.batches"=[{n}]}}']))
        for n in (7, 8)
    )
    assert data_hash(one.scenario) != data_hash(other.scenario)
    assert asked(one.scenario) != asked(other.scenario)
    assert len(one.scenario.named_batches) == 1 + 7
    # the trigger changes no row
    later = load_scenario("stream", [*ONE, "stream.trigger=processing_time"])
    (point,) = sweep_points(later)
    assert data_hash(point.scenario) == data_hash(one.scenario)
    assert asked(point.scenario) != asked(one.scenario)


@pytest.mark.parametrize(("services", "flag"), [("true", "true"), ("false", "false")])
def test_services_are_alike_on_both_sides(services: str, flag: str) -> None:
    (point,) = sweep_points(load_scenario("stream", [*ONE, f"stream.services={services}"]))
    scenario = point.scenario
    for kind in ("", "_cow"):
        ours = options_of(scenario, scenario.arm(f"arrow{kind}"), Write("upsert"))
        theirs = options_of_peer(scenario, scenario.arm(f"hudi_spark{kind}"), 7)
        compacts = "false" if kind else flag
        for options in (ours, theirs):
            assert [options[name] for name in SERVICES] == [compacts, flag, flag]
        assert theirs["hoodie.datasource.compaction.async.enable"] == "false"
    # the table that cells start from is served by nobody
    set_up = set_up_options(scenario, scenario.arm("arrow"), Write()).services
    assert (set_up.compact, set_up.clean, set_up.archive) == (False, False, False)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["stream.batches=0"], "stream.batches: found 0, expected a number from 1"),
        (["stream.trigger=once"], "expected one of available_now, processing_time"),
        (["measure.exchange=inprocess"], "a streaming query needs 'spark'"),
        (["commit.1.operation=delete"], "a delete cannot be measured as a stream"),
        (["commit=[{rows=10}, {rows=10}]"], "commit: has 2 tables"),
        (["arm.arrow.source_reader=spark"], "Spark reads a stream's source"),
        (["stream.readers=17"], "stream.readers: found 17, expected"),
        (["stream.readers=1", "commit.1.operation=insert"], "stream.readers: need upserts, and the"),
        (["stream.readers=1", "commit.1.deletes=0.1"], "stream.readers: need rows that nothing deletes"),
        (["stream.readers=1", "setup=[]"], "stream.readers: need a table before the first micro-batch"),
        (["stream.readers=1", "table.partial_update=IGNORE_DEFAULTS"],
         "stream.readers: need a table that keeps one of the rows of a key as it is"),
        (["arm.arrow.up_to=0"], "expected a number above 0"),
        (["arm=[{name='floor', control='parquet_floor'}]", "reference=floor"],
         "parquet_floor has no sink for a streaming query"),
        (['sweep.also={"stream.batches"=[3]}'], "gives 'stream.batches' 1 values, but"),
        (['sweep.also={"gate.alpha"=[1, 2, 3, 4]}'], "'gate.alpha' changes nothing that is measured"),
        (["arm=[{name='a', strategy='arrow', up_to=9}]", "reference=a"], "is above `up_to` of every arm"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_stream_is_refused_in_a_sentence(overrides: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_scenario("stream", overrides)
    # once, not once for every micro-batch
    assert str(refused.value).count(said) == 1
