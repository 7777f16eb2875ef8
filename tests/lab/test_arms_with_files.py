"""Arms whose tables have files of their own: each on such a table, and set against its like alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from serde_lab.analysis.arm_ratios import peer_ratios
from serde_lab.analysis.cell_values import CellValues, CommitValues
from serde_lab.analysis.run_values import run_values
from serde_lab.analysis.summary import summarise
from serde_lab.errors import ScenarioError
from serde_lab.lab.cells.peer_arms import options_of_peer, session_conf
from serde_lab.lab.runner import RunSettings, run_scenario
from serde_lab.report.run.ladder import options_in_words
from serde_lab.report.run.run_page import answer
from serde_lab.runs.directory import load_run
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import Scenario
from tests.lab.small_scenario import content, source

pytestmark = pytest.mark.slow

LOGS = {"type": "MERGE_ON_READ", "log_blocks": "parquet", "codec_level": 3}
ARMS: list[dict[str, Any]] = [
    {"name": "logs", "strategy": "arrow"},
    {"name": "cow", "strategy": "arrow", "table": {"type": "COPY_ON_WRITE"}, "changes": "table"},
    {"name": "gzip", "strategy": "arrow", "table": {"codec": "gzip"}},
    {"name": "plain", "strategy": "pickle"},
]


def scenario(folder: Path, arms: list[dict[str, Any]] = ARMS, **more: Any) -> Scenario:
    made = content(source(folder), arms, table=LOGS, **more)
    return parse_scenario({**made, "reference": arms[0]["name"]}, "small.toml")


def test_every_arm_writes_the_files_that_it_asks_for(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    places = {"results": tmp_path / "results", "cache": tmp_path / "cache", "work": tmp_path}
    outcome = run_scenario(scenario(tmp_path), RunSettings(keep_tables=kept, **places))
    assert outcome.exit_status == 0
    run = load_run(outcome.path)
    assert [check for check in run.checks if not check.passed] == []
    # whatever the files, the rows are the same
    agree = {check.arm: check.detail for check in run.checks if check.name == "arms_agree"}
    assert agree.keys() == {"logs", "cow", "gzip", "plain"}
    logs = {arm: len(list((kept / arm).rglob("*.log.*"))) for arm in agree}
    assert logs["cow"] == 0 < min(logs["logs"], logs["gzip"], logs["plain"])
    codecs = {
        arm: {
            pq.read_metadata(file).row_group(0).column(0).compression
            for file in (kept / arm).rglob("*.parquet")
        }
        for arm in agree
    }
    assert codecs == {"logs": {"ZSTD"}, "cow": {"ZSTD"}, "gzip": {"GZIP"}, "plain": {"ZSTD"}}

    arms = {arm["arm"]: arm for arm in summarise(run)["arms"]}
    assert {name: arm["ratio_to_reference"] is None for name, arm in arms.items()} == {
        "logs": False,
        "cow": True,
        "gzip": True,
        "plain": False,
    }
    facts = run_values(run)
    words = {arm.name: options_in_words(arm) for arm in facts.arms}
    assert words["cow"].endswith(" · COPY_ON_WRITE")
    assert words["gzip"].endswith(" · gzip")
    shown = answer(facts)
    assert "cow" not in shown.figure_about
    assert "gzip" not in shown.figure_about


def test_what_an_arm_does_not_give_is_as_the_table_says_or_does_not_apply(tmp_path: Path) -> None:
    found = scenario(tmp_path)
    for again in (found, parse_scenario(found.to_json(), "small.toml")):
        tables = {arm.name: again.table_of(arm) for arm in again.arms}
        assert (tables["cow"].log_blocks, tables["cow"].level) == (None, 3)
        # the level of another codec says nothing of this one
        assert (tables["gzip"].log_blocks, tables["gzip"].level) == ("parquet", 6)
        assert tables["gzip"].type == "MERGE_ON_READ"


def test_a_peer_writes_the_files_that_its_arm_asks_for(tmp_path: Path) -> None:
    cow = {"name": "there_cow", "peer": "hudi_spark", "table": {"type": "COPY_ON_WRITE"}}
    gzip = {"name": "there_gzip", "peer": "hudi_spark", "table": {"codec": "gzip"}}
    found = scenario(tmp_path, [ARMS[0], cow, gzip], exchange="spark")
    options = {arm.name: options_of_peer(found, arm, 1) for arm in found.arms if arm.peer}
    assert options["there_cow"]["hoodie.datasource.write.table.type"] == "COPY_ON_WRITE"
    assert options["there_gzip"]["hoodie.datasource.write.table.type"] == "MERGE_ON_READ"
    codec = "hoodie.parquet.compression.codec"
    assert (options["there_cow"][codec], options["there_gzip"][codec]) == ("zstd", "gzip")
    level = "spark.hadoop.parquet.compression.codec.zstd.level"
    assert session_conf(found) == {level: "3"}


@pytest.mark.parametrize(
    ("arm", "problem"),
    [
        ({"table": {"codec_level": 23}}, r"arm.odd.table.codec_level: found 23, expected 1 to 22"),
        (
            {"table": {"type": "COPY_ON_WRITE", "log_blocks": "avro"}},
            "arm.odd.table.log_blocks: is only for MERGE_ON_READ",
        ),
        ({"table": {"buckets": 3}}, "buckets"),
        ({"changes": "representation", "table": {"codec": "lz4"}}, r"is table \(table\)"),
        (
            {"strategy": None, "control": "exchange_only", "table": {"codec": "lz4"}},
            "arm.odd.table: this arm writes no table",
        ),
        (
            {"strategy": None, "peer": "hudi_spark", "table": {"codec": "gzip", "codec_level": 1}},
            "arm.odd.table.codec_level: found 1, but Apache Hudi writes gzip at level 6 only",
        ),
    ],
)
def test_files_that_cannot_be_are_refused(
    tmp_path: Path, arm: dict[str, Any], problem: str
) -> None:
    odd = {"name": "odd", "strategy": "arrow", **arm}
    given = {key: value for key, value in odd.items() if value is not None}
    with pytest.raises(ScenarioError, match=problem):
        scenario(tmp_path, [ARMS[0], given], exchange="spark")


def rounds(*seconds: float) -> dict[int, CellValues]:
    """Rounds of one commit each."""
    return {
        number: CellValues({}, {}, (CommitValues(1, {"seconds": value}, {}),))
        for number, value in enumerate(seconds, start=1)
    }


def test_only_tables_with_the_same_files_are_set_against_each_other() -> None:
    cow = {"table": {"type": "COPY_ON_WRITE"}}
    arms = [
        ({"arm": name, "kind": kind, **table}, rounds(seconds, 2 * seconds))
        for name, kind, seconds, table in (
            ("ours", "strategy", 2.0, {}),
            ("ours_cow", "strategy", 3.0, cow),
            ("theirs", "peer", 6.0, {}),
            ("theirs_cow", "peer", 12.0, cow),
        )
    ]
    timed = {arm["arm"]: measured for arm, measured in arms}
    ratios = peer_ratios([arm for arm, _ in arms], timed)
    found = [(one.arm, one.against, one.mean.value) for one in ratios]
    assert found == [
        ("ours", "theirs", pytest.approx(3.0)),
        ("ours_cow", "theirs_cow", pytest.approx(4.0)),
    ]


def test_peers_of_one_session_have_one_level_of_zstd(tmp_path: Path) -> None:
    peers = [
        {"name": "one", "peer": "hudi_spark"},
        {"name": "other", "peer": "hudi_spark", "table": {"codec_level": 9}},
    ]
    with pytest.raises(ScenarioError, match="zstd levels 3, 9, but Apache Hudi has one level"):
        scenario(tmp_path, [ARMS[0], *peers], exchange="spark")
