"""Scenarios of several tables: what the tables share, what they are asked, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.scenario.identity import arm_hash, asked, asked_of, data_hash
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.scenario.model import TpchData
from serde_lab.scenario.sweep import first_table, tables_of
from tpch import QUERIES, TABLES

NAME = "tpch_all"


def test_every_table_of_tpch_is_written_once() -> None:
    scenario = load_scenario(NAME)
    tables = tables_of(scenario)
    assert sorted(tables) == sorted(TABLES)
    assert [next(iter(tables)), first_table(scenario)] == ["lineitem", "lineitem"]
    for name, alone in tables.items():
        assert isinstance(alone.data, TpchData)
        assert (alone.data.table, alone.datasets, alone.queries) == (name, (), ())
        assert alone.data.record_key == TABLES[name].primary_key
        assert alone.data.refresh == (name in ("orders", "lineitem"))
        assert alone.arms == scenario.arms
    assert {arm.strategy for arm in scenario.arms} == {
        "pickle",
        "pickle_columns",
        "avro",
        "internal_row",
        "arrow",
    }
    assert set(scenario.queries) == set(QUERIES)


def test_what_is_said_once_holds_for_every_table() -> None:
    scenario = load_scenario(NAME, ["data.scale_factor=0.003", "table.type='MERGE_ON_READ'"])
    for name, alone in tables_of(scenario).items():
        assert isinstance(alone.data, TpchData)
        assert alone.data.scale_factor == 0.003
        assert alone.table.type == "MERGE_ON_READ"
        by_month = name in ("orders", "lineitem")
        # named by a column of the first table's own, so not shared
        assert bool(alone.table.time_folders) == bool(alone.data.partition and by_month)
        assert len(alone.timed) == (3 if by_month else 1)
    own = load_scenario(NAME, ["dataset.part.table.buckets=7", "dataset.part.data.seed=9"])
    assert [one.table.buckets for one in tables_of(own).values()] == [2, 2, 2, 7, 2, 2, 1, 1]
    assert [one.data.seed for one in own.datasets] == [1, 1, 9, 1, 1, 1, 1]


def test_a_table_has_the_input_that_it_has_alone() -> None:
    orders = tables_of(load_scenario(NAME))["orders"]
    alone = parse_scenario({**orders.to_json(), "name": "alone", "dataset": []})
    assert data_hash(alone) == data_hash(orders)


def test_datasets_survive_being_written_down_and_count_as_asked() -> None:
    scenario = load_scenario(NAME)
    assert parse_scenario(scenario.to_json()) == scenario
    assert asked_of(scenario.to_json()) == asked(scenario)
    for change in ("dataset.part.data.seed=2", "queries=['q1']", "dataset.part.table.buckets=4"):
        other = load_scenario(NAME, [change])
        assert asked(other) != asked(scenario)
        assert arm_hash(other, "arrow") != arm_hash(scenario, "arrow")


def test_one_table_asks_what_it_asked_before_there_were_several() -> None:
    smoke = load_scenario("smoke")
    old = smoke.to_json()
    del old["dataset"], old["queries"]
    assert asked_of(old) == asked(smoke)
    assert {"dataset", "queries"}.isdisjoint(asked(smoke))
    assert list(tables_of(smoke).values()) == [smoke]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["dataset.orders.data.partition=x"], "dataset.orders.data.partition: table orders has no"),
        (["dataset.orders.data.tble=x"], "dataset.orders.data.tble: is an unknown key"),
        (["dataset.orders.commit=[]"], "dataset.orders.commit: is empty, expected at least one"),
        (["dataset.part.commit.1.updates=0.5"], "dataset.part.commit.1.updates: cannot be set: an"),
        (["dataset.part.table.hive_style=true"], "dataset.part.table.hive_style: needs data.partition"),
        (["dataset.part.name=lineitem"], "2 tables have this name; that of [data] is 'lineitem'"),
        (["dataset=3"], "dataset: found 3, expected an array of tables, [[dataset]]"),
        (["queries=['q2']"], "queries.1: found 'q2', expected one of q1, q3, q5, q6, q10, q12, q14"),
        (["queries=['q6', 'q6']"], "queries: names 'q6' 2 times"),
        (["dataset.part.data.table=supplier"], "queries: q14 reads part, not among the tables here"),
        (["dataset.part.data.table=supplier"], "queries: read supplier, of which the scenario has 2"),
        (["measure.exchange=inprocess"], "queries: need measure.exchange 'spark', not 'inprocess'"),
        (["arm.arrow={name='x', control='parquet_floor'}"], "writes no Hudi table that queries could"),
        (["arm.arrow={name='x', peer='hudi_avro'}"], "arm.x: peers cannot write several tables yet"),
        (["sweep.key=data.seed", "sweep.values=[1, 2]"], "a sweep changes one table; remove [sweep]"),
        (["stream.batches=3"], "dataset: a stream writes one table; remove [stream] or [[dataset]]"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_a_sentence(changes: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        load_scenario(NAME, changes)
    assert said in str(refused.value)


def test_a_dataset_of_ones_own_files_shares_nothing_of_tpch() -> None:
    document: dict[str, Any] = load_scenario(NAME).to_json()
    own = {"source": "parquet", "path": "x.parquet", "key": "id"}
    document["dataset"] = [{"name": "own", "data": own, "commit": [{"operation": "insert"}]}]
    document["queries"] = ["q1", "q6"]
    (dataset,) = parse_scenario(document).datasets
    assert (dataset.data.source, dataset.data.input_partitions) == ("parquet", 4)
