"""Two scenarios ask the same unless something that is measured differs."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.scenario.identity import arm_hash, asked, data_hash, with_defaults
from serde_lab.scenario.loading import load_scenario, parse_scenario
from serde_lab.scenario.model import Arm, TableSection


@pytest.mark.parametrize(
    "override",
    [
        "name=other", "title=other", "question=other", "reference=arrow", "measure.rounds=99",
        "measure.seed=99", "gate.relative=0.5", "arm.arrow.note=other",
    ],
)  # fmt: skip
def test_words_and_repetitions_are_not_asked(override: str) -> None:
    assert asked(load_scenario("smoke", [override])) == asked(load_scenario("smoke"))


@pytest.mark.parametrize(
    "override",
    [
        "data.scale_factor=0.02", "data.seed=2", "data.input_partitions=5", "setup.1.share=0.4",
        "commit.1.late=0.03", "commit.1.duplicates=0.0", "table.buckets=5", "table.codec_level=2",
        "measure.warmup=2", "measure.cores=1", "measure.worker_memory_mb=2048",
        "arm.internal_row.options.rows_per_frame=10", "arm.pickle.options.layout=dict",
        "arm.exchange_only.frames_of=arrow", "data.partition=l_shipmode",
    ],
)  # fmt: skip
def test_everything_else_is(override: str) -> None:
    assert asked(load_scenario("smoke", [override])) != asked(load_scenario("smoke"))


def test_defaults_spelt_out_ask_the_same() -> None:
    smoke = load_scenario("smoke")
    assert asked(parse_scenario(smoke.to_json())) == asked(smoke)


def test_values_are_asked_even_where_they_are_the_default() -> None:
    """A default that changes one day is then another question."""
    stated = asked(load_scenario("smoke"))
    assert set(TableSection.model_fields) <= set(stated["table"])
    assert set(Arm.model_fields) - {"note", "changes"} <= set(stated["arm"][0])


def test_what_was_asked_before_there_was_a_key_asked_for_its_default() -> None:
    now = asked(load_scenario("smoke"))
    before = {**now, "table": {k: v for k, v in now["table"].items() if k != "hive_style"}}
    assert before != now
    assert with_defaults(before) == now
    assert with_defaults(before | {"table": {"hive_style": True}})["table"] != now["table"]


def test_an_arm_stays_the_same_when_others_change() -> None:
    smoke = load_scenario("smoke")
    other = load_scenario("smoke", ["arm.pickle.options.layout=dict"])
    fewer = smoke.to_json()
    fewer["arm"] = [arm for arm in fewer["arm"] if arm["name"] != "avro"]
    assert arm_hash(smoke, "arrow") == arm_hash(other, "arrow")
    assert arm_hash(smoke, "arrow") == arm_hash(parse_scenario(fewer), "arrow")
    assert arm_hash(smoke, "pickle") != arm_hash(other, "pickle")
    assert arm_hash(smoke, "arrow") != arm_hash(smoke, "avro")


def test_paths_do_not_count_but_own_files_do() -> None:
    def asked_with(path: str, commit: str | None) -> dict[str, Any]:
        batch = {"rows": 5} if commit is None else {"path": commit}
        return asked(
            parse_scenario(
                {
                    "name": "s",
                    "title": "t",
                    "question": "q",
                    "data": {"source": "parquet", "path": path, "key": "k", "ordering": "o"},
                    "commit": [batch],
                    "arm": [{"name": "a", "strategy": "pickle"}],
                }
            )
        )

    assert asked_with("a", "x") == asked_with("b", "y")
    assert asked_with("a", "x") != asked_with("a", None)


def test_data_is_decided_by_data_and_batches_alone() -> None:
    smoke = load_scenario("smoke")
    assert data_hash(smoke) == data_hash(load_scenario("smoke", ["table.buckets=99"]))
    assert data_hash(smoke) != data_hash(load_scenario("smoke", ["data.seed=99"]))
    assert data_hash(smoke) != data_hash(load_scenario("smoke", ["commit.1.late=0.03"]))
