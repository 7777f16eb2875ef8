"""Settings of arms: which are taken, which are refused with what reason, and what they reach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import ScenarioError
from serde_lab.lab.cells.peer_arms import options_of_peer, plan_peers
from serde_lab.lab.plan import Write, options_of, timed_options
from serde_lab.peers.apache_hudi import ARMS, TUNED
from serde_lab.scenario.consistency.arms import factors
from serde_lab.scenario.hudi_options import settings_problems
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Scenario
from serde_lab.scenario.sweep import apply_overrides
from tests.lab.small_scenario import content, scenario, source

PAGES = {"hoodie.parquet.page.size": 65536}
PARALLEL = {"spark.driver.defaultJavaOptions": "-XX:+UseParallelGC -XX:NewRatio=1"}


def with_arms(folder: Path, *arms: dict[str, Any], **given: Any) -> Scenario:
    named = [{"name": f"arm_{n}", **arm} for n, arm in enumerate(arms)]
    return scenario(source(folder), named, **{"exchange": "spark", **given})


@pytest.mark.parametrize(
    ("arm", "settings", "reason"),
    [
        ("hudi_spark", {"hoodie.parquet.compression.codec": "snappy"}, "the codec of [table]"),
        ("hudi_spark", {"spark.hadoop.parquet.page.size": "9"}, "could change the codec"),
        ("hudi_spark", {"hoodie.populate.meta.fields": False}, "the five meta columns"),
        ("hudi_spark", {"hoodie.write.markers.type": "NONE"}, "expected DIRECT|TIMELINE_SERVER_BASED"),
        ("hudi_spark", {"hoodie.parquet.pagesize": 9}, "did you mean 'hoodie.parquet.page.size'?"),
        ("hudi_spark", {"hoodie.parquet.page.size": 0}, "found '0', expected a whole number from 1"),
        ("hudi_spark", {"hoodie.metadata.enable": "yes"}, "found 'yes', expected true or false"),
        ("hudi_spark", {"spark.master": "local[8]"}, "the slots of measure.cores"),
        ("hudi_spark", {"spark.driver.memory": "much"}, "a size, such as 512m or 8g"),
        ("hudi_spark", {"spark.driver.defaultJavaOptions": "-Dx=y"}, "flags of a garbage collector"),
        ("hudi_spark", {"spark.sql.adaptive.enabled": True}, "the same plan"),
        ("hudi_spark", {"hoodie.logfile.max.size": 9}, "a copy-on-write table has no log files"),
        ("internal_row", {"hoodie.write.executor.type": "SIMPLE"}, "is for peers"),
        ("spark_native", PAGES, "spark_native takes no settings"),
    ],
)  # fmt: skip
def test_a_setting_that_is_unknown_or_unfair_is_refused_with_its_reason(
    tmp_path: Path, arm: str, settings: dict[str, Any], reason: str
) -> None:
    kinds = {"hudi_spark": "peer", "internal_row": "strategy", "spark_native": "control"}
    with pytest.raises(ScenarioError, match=r"arm\.arm_0\.settings") as refused:
        with_arms(tmp_path, {kinds[arm]: arm, "settings": settings})
    assert reason in str(refused.value)


def test_dots_of_names_need_no_quotes_and_a_value_that_is_no_value_is_one_problem(
    tmp_path: Path,
) -> None:
    nested = {"hoodie": {"parquet": {"page": {"size": 65536}}}, "spark.kryo": {"unsafe": True}}
    (arm,) = with_arms(tmp_path, {"peer": "hudi_spark", "settings": nested}).arms
    assert arm.write_settings == {"hoodie.parquet.page.size": "65536"}
    assert arm.session_settings == {"spark.kryo.unsafe": "true"}
    file = source(tmp_path)
    whole = content(file, [{"name": "a", "strategy": "arrow"}], exchange="spark")
    set_ = apply_overrides(whole, [("arm.a.settings.hoodie.parquet.page.size", 4096)])
    assert parse_scenario(set_).arms[0].stated_settings == {"hoodie.parquet.page.size": "4096"}
    with pytest.raises(
        ScenarioError, match=r"the value of hoodie\.x is no text, no number"
    ) as refused:
        with_arms(tmp_path, {"peer": "hudi_spark", "settings": {"hoodie": {"x": [1]}}})
    assert str(refused.value).count("settings") == 1


def test_settings_need_spark_and_an_index_keeps_the_filters_that_it_reads(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"needs Spark, but measure\.exchange is 'inprocess'"):
        with_arms(tmp_path, {"strategy": "arrow", "settings": PAGES}, exchange="inprocess")
    bloom = {"hoodie.parquet.bloom.filter.enabled": "false"}
    found = with_arms(tmp_path, {"peer": "hudi_spark", "settings": bloom})
    assert not list(settings_problems("arm", found.arms[0], found))
    table = found.table.model_copy(update={"index": "BLOOM"})
    topology = found.topology.model_copy(update={"name": "bloom"})
    searched = found.model_copy(update={"table": table, "topology": topology})
    (problem,) = settings_problems("arm", found.arms[0], searched)
    assert "the index BLOOM may read Bloom filters" in problem.clause


def test_both_writers_are_handed_the_settings_and_a_difference_in_them_is_a_factor(
    tmp_path: Path,
) -> None:
    layout = {
        **PAGES,
        "hoodie.parquet.dictionary.enabled": False,
        "hoodie.parquet.block.size": 4096,
    }
    ours = {"strategy": "arrow", "settings": layout}
    found = with_arms(
        tmp_path, {"strategy": "arrow"}, ours, {"peer": "hudi_spark", "settings": layout}
    )
    plain, set_, peer = found.arms
    texts = {key: str(value).lower() for key, value in layout.items()}
    assert options_of_peer(found, peer, 1).items() >= texts.items()
    assert options_of(found, set_, Write("upsert")).items() >= texts.items()
    format = timed_options(found, set_, Write("upsert")).file_format
    assert (format.dictionaries, format.page_bytes, format.row_group_bytes) == (False, 65536, 4096)
    assert factors(plain, set_) == {"settings": ["settings"]}


def test_arms_that_differ_in_settings_of_spark_get_sessions_of_their_own(tmp_path: Path) -> None:
    jar = tmp_path / "hudi.jar"
    jar.write_bytes(b"PK")
    found = with_arms(
        tmp_path,
        {"strategy": "arrow"},
        {"peer": "hudi_spark", "settings": PARALLEL},
        {"strategy": "internal_row", "settings": PARALLEL},
        {"peer": "hudi_avro", "settings": PAGES},
    )
    plan = plan_peers(found, found.arms, jar=str(jar))
    shared, parallel = plan.sessions
    assert (shared.arms, parallel.arms) == ({"arm_0", "arm_3"}, {"arm_1", "arm_2"})
    assert dict(parallel.conf) == {**shared.conf, **PARALLEL}
    assert not plan.isolated
    isolated = plan_peers(found, found.arms, jar=str(jar), isolated=True)
    assert [sorted(one.arms) for one in isolated.sessions] == [
        ["arm_0"],
        ["arm_2"],
        ["arm_3"],
        ["arm_1"],
    ]
    assert isolated.isolated


@pytest.mark.parametrize("peer", ["hudi_spark_tuned", "hudi_spark_tuned_before"])
def test_the_settings_of_the_tuned_arms_are_such_as_an_arm_may_have(
    tmp_path: Path, peer: str
) -> None:
    arm = {"peer": "hudi_spark", "settings": dict(ARMS[peer].tuned)}
    (tuned,) = with_arms(tmp_path, arm).arms
    assert tuned.stated_settings == dict(ARMS[peer].tuned)
    assert ARMS["hudi_spark_tuned"].tuned is TUNED
