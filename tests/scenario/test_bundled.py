"""The scenarios of the project, and the page that explains their vocabulary."""

from __future__ import annotations

import itertools
import re
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from serde_lab.gate.decision import Policy
from serde_lab.scenario.consistency.arms import EXECUTIONS, factors
from serde_lab.scenario.loading import (
    load_scenario,
    parse_scenario,
    scenario_files,
    scenario_folder,
)
from serde_lab.scenario.model import TableName, TpchData
from serde_lab.scenario.problems import all_keys
from tpch.generator import TABLES

FOLDER = Path(__file__).parents[2] / "scenarios"
NAMES = [file.stem for file in scenario_files(FOLDER)]
README = (FOLDER / "README.md").read_text()
HOME = (FOLDER.parent / "README.md").read_text()


def test_the_folder_holds_toml_and_the_page_only() -> None:
    assert scenario_folder() == FOLDER
    strange = [
        path.name
        for path in FOLDER.rglob("*")
        if path.suffix != ".toml" and path.name != "README.md"
    ]
    assert not strange


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_loads_and_is_in_the_list(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert f"| `{name}` |" in README
    Policy.from_table(scenario.to_json()["gate"])


def test_smoke_has_all_strategies_and_controls() -> None:
    smoke = load_scenario("smoke")
    subjects = {arm.subject for arm in smoke.arms}
    assert subjects == {*EXECUTIONS, "exchange_only", "spark_native", "parquet_floor"}
    assert (smoke.measure.rounds, smoke.measure.warmup) == (3, 1)


def test_upsert_lineitem_is_what_its_title_says() -> None:
    scenario = load_scenario("upsert_lineitem")
    setup, commit = scenario.batches
    rows = 1_199_969
    assert isinstance(scenario.data, TpchData)
    assert round(TABLES["lineitem"].rows_at_factor_1 * scenario.data.scale_factor) // 1000 == 1200
    assert (setup.operation, setup.rows_of(rows)) == ("bulk_insert", rows)
    assert (commit.operation, commit.rows_of(rows), commit.updates) == ("upsert", rows, 0.5)
    assert (scenario.table.type, scenario.table.buckets) == ("COPY_ON_WRITE", 8)
    assert (scenario.table.codec, scenario.table.level) == ("zstd", 1)


def test_the_merge_on_read_twin_differs_in_the_table_alone() -> None:
    twins = [load_scenario(name).to_json() for name in ("upsert_lineitem", "upsert_lineitem_mor")]
    assert [twin["table"].pop("type") for twin in twins] == ["COPY_ON_WRITE", "MERGE_ON_READ"]
    for twin in twins:
        for words in ("name", "title", "question"):
            del twin[words]
    assert twins[0] == twins[1]


def test_every_step_of_the_ladder_changes_one_factor() -> None:
    arms = [arm for arm in load_scenario("ladder").arms if arm.kind == "strategy"]
    assert [arm.control for arm in load_scenario("ladder").arms[len(arms) :]] == ["work_floor"]
    found = [(after.name, *factors(before, after)) for before, after in itertools.pairwise(arms)]
    assert found == [
        ("pickle_dict", "representation"),
        ("pickle", "representation"),
        ("avro", "representation"),
        ("internal_row_by_row", "representation"),
        ("internal_row", "execution"),
        ("internal_row_1000", "framing"),
        ("arrow_1000", "representation"),
        ("arrow_10000", "framing"),
        ("arrow_10000_rdd", "shuffle"),
    ]
    assert [arm.changes for arm in arms[1:]] == [factor for _, factor in found]


def _documented() -> dict[str, list[str]]:
    """Section -> keys, from the page's headings and tables."""
    found: dict[str, list[str]] = {}
    places: list[str] = []
    for line in README.splitlines():
        if line.startswith("#"):
            places = re.findall(r"`\[+([a-z_.]+)\]+`", line)
            if line == "## The top of the file":
                places = [""]
        elif match := re.match(r"\| `([a-z_]+)` \|.+\|.*\| .+ \|$", line):
            for place in places:
                found.setdefault(place, []).append(match[1])
    return found


def test_every_key_is_explained_and_no_other() -> None:
    vocabulary: dict[str, list[str]] = {}
    for place, key in all_keys():
        vocabulary.setdefault(place, []).append(key)
    for place in [place for place in vocabulary if place.startswith("dataset.")]:
        # a dataset's keys are explained where those of the file are
        assert vocabulary.pop(place) == vocabulary[place.removeprefix("dataset.")]
    documented = _documented()
    assert {place: sorted(keys) for place, keys in documented.items()} == {
        place: sorted(keys) for place, keys in vocabulary.items()
    }
    assert all(len(keys) == len(set(keys)) for keys in documented.values())


def test_the_example_of_the_pages_is_a_scenario() -> None:
    home = HOME.split("## Your own data")[1].split("    python -m")[0]
    later = README.split("## A scenario of your own data")[1]
    text = "\n".join(line[4:] for line in f"{home}\n{later}".splitlines() if line[:4] == "    ")
    scenario = parse_scenario(tomllib.loads(text), default_name="example")
    assert scenario.ordering == ("updated_at",)
    assert len(scenario.commits) == 2


def test_the_tables_are_those_of_tpch() -> None:
    assert TableName.__args__ == tuple(TABLES)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", EXECUTIONS)
def test_executions_are_those_of_the_strategies(name: str) -> None:
    (entry,) = entry_points(group="serde_lab.strategies", name=name)
    try:
        strategy = entry.load()
    except ModuleNotFoundError:
        pytest.skip("the strategy is not written yet")
    assert set(EXECUTIONS[name]) == set(strategy.executions)
