"""The controls that upsert by another format's MERGE INTO: right rows, what a run says, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.analysis.summary import summarise
from serde_lab.errors import ScenarioError, SetupError
from serde_lab.lab.cells.instead import merge_into
from serde_lab.lab.cells.peer_arms import plan_peers
from serde_lab.lab.inputs.prepared import default_cache
from serde_lab.lab.jars import manifest
from serde_lab.lab.jars.manifest import FORMATS, Jar, fetch_jars
from serde_lab.peers import table_formats
from serde_lab.peers.table_formats import FORMAT_ASPECTS
from serde_lab.report.render import run_text
from serde_lab.report.run.run_page import run_page
from serde_lab.runs.model import Run
from serde_lab.scenario.loading import parse_scenario
from serde_lab.scenario.model import FORMAT_CONTROLS
from tests.lab.jar_server import CONTENT, JAR, no_other_home
from tests.lab.small_scenario import content, run_in_a_process, run_in_session, source
from tests.report.page_reader import PageReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGE_ON_READ = {"type": "MERGE_ON_READ"}
ARMS: list[Any] = [
    {"name": "delta", "control": "delta_merge"},
    {"name": "delta_vectors", "control": "delta_merge", "table": MERGE_ON_READ},
    {"name": "iceberg", "control": "iceberg_merge"},
    {"name": "iceberg_rows", "control": "iceberg_merge", "table": MERGE_ON_READ},
]


def document(folder: Path, *arms: Any) -> dict[str, Any]:
    return content(source(folder), arms, exchange="spark")


def unbroken(text: str) -> str:
    """`text` without blanks: a page may break long words anywhere."""
    return "".join(text.split())


def page_of(run: Run) -> str:
    """The text of the run's report, unbroken."""
    return unbroken(PageReader(run_text(run)).text)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One run of both formats, each with both kinds of files."""
    for jars in FORMATS.values():
        fetch_jars(jars)
    folder = tmp_path_factory.mktemp("merged")
    with pytest.MonkeyPatch.context() as patch:
        # the run's own folder has no jars
        patch.setenv("SERDE_LAB_CACHE", str(default_cache().absolute()))
        return run_in_a_process(document(folder, *ARMS), folder)


@pytest.mark.spark
def test_their_tables_hold_the_right_rows(merged: Run) -> None:
    assert {cell.status for cell in merged.cells} == {"ok"}
    assert not [check for check in merged.checks if check.failed]
    for arm in ARMS:
        names = {c.name for c in merged.checks if c.arm == arm["name"] and c.passed}
        assert {"rows_match_oracle", "arms_agree", "files_alike"} <= names


@pytest.mark.spark
def test_what_was_measured_is_what_other_arms_have(merged: Run) -> None:
    for arm in summarise(merged)["arms"]:
        assert arm["seconds"]["median"] > 0
        assert arm["tree_cpu_s"] > 0
        assert [commit["rows"] for commit in arm["commits"]] == [1000]
        found = sum(phase["wall_s"] for one in arm["commits"] for phase in one["phases"].values())
        assert found == pytest.approx(arm["slots"] * arm["seconds"]["median"], rel=1e-6)


@pytest.mark.spark
def test_the_kind_of_files_follows_the_table_s_type(merged: Run) -> None:
    """Copy-on-write has as many files as buckets; merge-on-read adds files, and others that mark rows."""
    facts = {c.arm: c.facts for c in merged.checks if c.name == "files_alike"}
    assert {one["codec"] for one in facts.values()} == {"zstd"}
    assert {one["statistics"] for one in facts.values()} == {"5 of 5"}
    for format_ in ("delta", "iceberg"):
        assert facts[format_]["base_files"] == 2
    assert facts["delta_vectors"]["base_files"] > 2
    assert facts["iceberg_rows"]["base_files"] > 2
    files = {arm["arm"]: arm["files"] for arm in summarise(merged)["arms"]}
    for arm, found in facts.items():
        more = files[str(arm)] - int(found["base_files"])
        assert (more > 0) is (arm in ("delta_vectors", "iceberg_rows"))


@pytest.mark.spark
def test_the_page_says_what_each_way_costs_and_does_not_give(merged: Run) -> None:
    page = run_page(merged)
    said = [sentence.text for sentence in page.answer.sentences]
    assert any(
        one.startswith("The same upserts took: `delta` ") and "s of CPU" in one for one in said
    )
    lacks = "record keys, an index and incremental reads of updates"
    assert f"What a Delta table does not give: {lacks}." in said
    assert f"What an Iceberg table does not give: {lacks}." in said
    shown = page_of(merged)
    for one in FORMAT_ASPECTS:
        assert unbroken(one.name) in shown
    for form in (table_formats.DELTA, table_formats.ICEBERG):
        assert form.session_conf["spark.sql.extensions"] in shown
    assert "delta-spark_2.12-3.3.3.jar,delta-storage-3.3.3.jar" in shown


@pytest.mark.spark
def test_each_format_has_a_session_of_its_own(merged: Run) -> None:
    first, second = merged.header.settings["sessions"]
    assert (first["arms"], second["arms"]) == (
        ["delta", "delta_vectors"],
        ["iceberg", "iceberg_rows"],
    )
    for session, form in ((first, table_formats.DELTA), (second, table_formats.ICEBERG)):
        assert session["settings"] == form.session_conf
        assert "hudi" not in str(session).lower()


def test_the_statement_compares_all_ordering_columns_and_quotes_names() -> None:
    assert merge_into("x.t", "v", ["a", "b`c"], ["o", "p"]) == (
        "MERGE INTO x.t t USING v c ON t.`a` = c.`a` AND t.`b``c` = c.`b``c`"
        " WHEN MATCHED AND struct(c.`o`, c.`p`) >= struct(t.`o`, t.`p`) THEN UPDATE SET *"
        " WHEN NOT MATCHED THEN INSERT *"
    )


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Jar, ...]]:
    """Small files in the place of the formats' jars, in an empty machine's cache."""
    no_other_home(monkeypatch, tmp_path)
    cache = tmp_path / "cache"
    monkeypatch.setenv("SERDE_LAB_CACHE", str(cache))
    made = {
        control: (replace(JAR, title=control, artifact=control, variable=""),)
        for control in FORMAT_CONTROLS
    }
    monkeypatch.setattr(manifest, "FORMATS", made)
    (cache / "jars").mkdir(parents=True)
    for (jar,) in made.values():
        (cache / "jars" / jar.file_name).write_bytes(CONTENT)
    return made


def test_sessions_keep_formats_and_peers_apart(
    tmp_path: Path, stand_ins: dict[str, tuple[Jar, ...]]
) -> None:
    bundle = tmp_path / "bundle.jar"
    bundle.write_bytes(b"")
    peer = {"name": "hudi_spark", "peer": "hudi_spark"}
    scenario = parse_scenario(document(tmp_path, "arrow", peer, *ARMS))
    plan = plan_peers(scenario, scenario.arms, jar=str(bundle), isolated=True)
    arms = [sorted(session.arms) for session in plan.sessions]
    assert arms == [
        ["arrow"],
        ["delta", "delta_vectors"],
        ["iceberg", "iceberg_rows"],
        ["hudi_spark"],
    ]
    jars = [[Path(jar).name for jar in session.jars] for session in plan.sessions]
    wanted = [[jar.file_name for jar in stand_ins[control]] for control in FORMAT_CONTROLS]
    assert jars == [[], *wanted, ["bundle.jar"]]
    only = [arm for arm in scenario.arms if arm.control == "delta_merge"]
    (session,) = plan_peers(scenario, only).sessions
    assert session.conf == table_formats.DELTA.session_conf


@pytest.mark.spark
def test_without_their_jars_they_are_left_out_with_a_sentence(
    spark: SparkSession,
    tmp_path: Path,
    stand_ins: dict[str, tuple[Jar, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SERDE_LAB_CACHE", str(tmp_path / "empty"))
    run = run_in_session(spark, document(tmp_path, "arrow", *ARMS[::2]), tmp_path)
    arms = {arm["arm"]: arm for arm in summarise(run)["arms"]}
    assert arms["arrow"]["status"] == "ok"
    shown = page_of(run)
    for arm, control in (("delta", "delta_merge"), ("iceberg", "iceberg_merge")):
        assert arms[arm]["status"] == "missing"
        said = f"{control} ({stand_ins[control][0].coordinates}) is not on this machine: run"
        assert arms[arm]["missing"].startswith(f"{said} `serde-lab doctor --fetch-formats` (4 MB)")
        assert unbroken(f"{arm} was left out: {said}") in shown


def test_they_are_an_error_where_all_arms_are_required(
    tmp_path: Path, stand_ins: dict[str, tuple[Jar, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERDE_LAB_CACHE", str(tmp_path / "empty"))
    scenario = parse_scenario(document(tmp_path, "arrow", *ARMS))
    with pytest.raises(SetupError, match=r"^delta, delta_vectors: delta_merge .* is not on"):
        plan_peers(scenario, scenario.arms, required=True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"commit": [{"operation": "delete", "share": 0.1}]}, "cannot delete"),
        ({"commit": [{"share": 0.1, "deletes": 0.1}]}, "knows no marked deletes"),
        ({"table": {"merge_mode": "COMMIT_TIME_ORDERING"}}, "greatest ordering value"),
        ({"data": {"partition": "flag"}}, "without partitions, but data.partition is flag"),
        ({"measure": {"exchange": "inprocess"}}, "needs Spark"),
        ({"stream": {"batches": 2}, "setup": []}, "no sink for a streaming query"),
    ],
)
def test_what_they_cannot_do_is_refused(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    whole = document(tmp_path, "arrow", *ARMS)
    for key, value in changed.items():
        whole[key] = {**whole.get(key, {}), **value} if isinstance(value, dict) else value
    with pytest.raises(ScenarioError, match=said):
        parse_scenario(whole)
