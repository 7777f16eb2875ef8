"""The page `docs/architecture.md` draws the ways of a record and of a figure as they really are.

`SERDE_LAB_UPDATE_GOLDEN=1` writes the page's lists anew. The counts may only fall: a limit is raised
with a reason beside the number.
"""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from serde_lab.cli.app import main
from serde_lab.lab import runner
from serde_lab.lab.checks.stand_alone import Proof
from serde_lab.lab.run_settings import RunSettings
from serde_lab.lab.runner import run_scenario
from serde_lab.pipeline.spark import exchange as spark_exchange
from serde_lab.pipeline.write import PreparedWrite
from serde_lab.records.operation import Operation
from serde_lab.runs.model import Check
from serde_lab.scenario.loading import parse_scenario
from serde_lab.verify.table_checks import TableVerdict
from tests.architecture.following import ROOT, Figure, FollowedTask, Follower, following
from tests.lab.small_scenario import SharedSession, content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = ROOT / "docs" / "architecture.md"
UPDATE = os.environ.get("SERDE_LAB_UPDATE_GOLDEN") == "1"
MOST = {"record": 46, "figure": 17}
"""Modules that each way may enter. A record's was 42 long; since then came what times the reading of columns
wherever it happens, what gives base files the format that an arm sets, the two forms of Spark's shuffle, how
Parquet is written, which base files and log blocks share, and what a commit says of its files, for all that
need no timeline; and one went."""


class _NothingToCheck:
    """Tables and frames are not read back: no record and no figure passes there."""

    rules = None

    def __init__(self, *args: object, **kwargs: object) -> None:
        return

    def judge(self, *args: object) -> TableVerdict:
        return TableVerdict((Check("rows_match", True, "not looked at"),), None)

    def rows_of(self, *args: object) -> None:
        return


class _NoReferee:
    def __init__(self, *args: object) -> None:
        return

    def judge(self, *args: object) -> dict[str, Check]:
        return {}


@pytest.fixture(scope="module")
def roads(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, int]]:
    """By way, when each module was first entered: a tiny run of `lineitem`, and its report."""
    folder = tmp_path_factory.mktemp("roads")
    notes, record, handed_on = folder / "notes", Follower(), Follower()
    notes.mkdir()
    commit = PreparedWrite.commit
    with pytest.MonkeyPatch.context() as patch, ExitStack() as after_the_commit:

        def followed_commit(write: PreparedWrite, *args: Any, **kwargs: Any) -> Any:
            if write.options.operation is not Operation.UPSERT:
                return commit(write, *args, **kwargs)
            with following(record):
                done = commit(write, *args, **kwargs)
            handed_on.figure = Figure(_nanoseconds(notes))
            after_the_commit.enter_context(following(handed_on))
            return done

        patch.setattr(PreparedWrite, "commit", followed_commit)
        patch.setattr(spark_exchange, "SparkTask", partial(FollowedTask, notes))
        path = _tiny_run(spark, folder, patch)
        after_the_commit.close()
        with following(handed_on):
            # the page is what counts, not what is said of an output that pytest captures
            assert main(["report", str(path), "--out", str(folder / "page.html")]) == 0
    figure = Figure(_nanoseconds(notes))
    assert f'data-v="{figure.seconds:.10g}"' in (folder / "page.html").read_text()
    return {
        "record": _together(record.entered, _notes(notes, "record")),
        "figure": _together(handed_on.entered, _notes(notes, "figure")),
    }


def _tiny_run(spark: SparkSession, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Half of 6,005 rows, then an upsert of the other half: one map task, one reduce task."""
    patch.setattr(runner, "RunSession", lambda *_: SharedSession(spark))
    patch.setattr(runner, "CellChecks", _NothingToCheck)
    patch.setattr(runner, "Referee", _NoReferee)
    patch.setattr(runner, "frames_stand_alone", lambda *args: Proof({}, {}))
    document = content(folder, ["internal_row"], exchange="spark", table={"buckets": 1})
    document["data"] = {
        "source": "tpch",
        "table": "lineitem",
        "scale_factor": 0.001,
        "input_partitions": 1,
    }
    settings = RunSettings(folder / "results", folder / "cache", folder / "work")
    return run_scenario(parse_scenario(document), settings).path


def _nanoseconds(notes: Path) -> int:
    """The figure, which one task reported."""
    (found,) = (n for n in _notes(notes, "nanoseconds") if n is not None)
    assert isinstance(found, int)
    return found


def _notes(notes: Path, key: str) -> list[Any]:
    return [json.loads(note.read_text())[key] for note in sorted(notes.iterdir())]


def _together(driver: Mapping[str, int], tasks: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Modules in the order in which they were first entered, wherever that was."""
    first: dict[str, int] = {}
    for entered in (driver, *tasks):
        for module, at in entered.items():
            first[module] = min(at, first.get(module, at))
    return dict(sorted(first.items(), key=lambda item: item[1]))


@pytest.mark.parametrize("way", ["record", "figure"])
def test_the_page_lists_the_modules_that_a_way_enters(
    way: str, roads: Mapping[str, Mapping[str, int]]
) -> None:
    listed = [f"{n}. `{module}`: {_about(module)}" for n, module in enumerate(roads[way], 1)]
    before = PAGE.read_text()
    begin, end = f"<!-- modules of a {way} -->\n", f"<!-- end of a {way} -->\n"
    head, _, rest = before.partition(begin)
    _, _, tail = rest.partition(end)
    after = head + begin + "".join(f"{line}\n" for line in listed) + end + tail
    if UPDATE:
        PAGE.write_text(after)
    assert PAGE.read_text() == after, "SERDE_LAB_UPDATE_GOLDEN=1 writes the page anew"


@pytest.mark.parametrize("way", ["record", "figure"])
def test_a_way_enters_no_more_modules_than_before(
    way: str, roads: Mapping[str, Mapping[str, int]]
) -> None:
    assert len(roads[way]) <= MOST[way]


def _about(module: str) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
    return " ".join(text.partition("\n\n")[0].split())
