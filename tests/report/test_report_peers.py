"""The table of options that the lab and Apache Hudi were handed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from serde_lab.analysis.run_values import run_values
from serde_lab.report.page import Table
from serde_lab.report.run.beside import peers_section
from serde_lab.runs.directory import load_run

RUN = Path(__file__).parents[2] / "results" / "reference" / "beside_hudi" / "20261122T100759Z"
NAME = "hoodie.table.name"


def options_table(settings: dict[str, object]) -> Table | None:
    run = load_run(RUN)
    header = run.header.model_copy(update={"settings": {**run.header.settings, **settings}})
    section = peers_section(run_values(replace(run, header=header)))
    assert section is not None
    found = [
        one for one in section.blocks if isinstance(one, Table) and one.columns[0].key == "option"
    ]
    return found[0] if found else None


def test_options_of_both_sides_are_one_table() -> None:
    peers = [arm for arm in load_run(RUN).header.arms if arm.kind == "peer"]
    ours = {"arrow": {NAME: peers[0].options[NAME], "serde_lab.strategy": "arrow"}}
    table = options_table({"write_options": ours})
    assert table is not None
    rows = [tuple(cell.text for cell in row) for row in table.rows]
    assert rows[0] == (NAME, "lab", "all")
    assert ("serde_lab.strategy", "arrow", "arrow") in rows
    assert "the first commit, 1 of them the same for all arms" in table.caption
    of_one = [row for row in rows if row[2] == peers[0].arm]
    assert all(peers[0].options[option] == value for option, value, _ in of_one)


def test_an_older_run_has_no_such_table() -> None:
    assert options_table({}) is None
