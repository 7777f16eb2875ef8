"""The table of options that the lab and Apache Hudi were handed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from serde_lab.analysis.run_values import run_values
from serde_lab.report.page import Table
from serde_lab.report.run.beside_hudi import peers_section
from serde_lab.report.run.run_page import answer
from serde_lab.report.run.ways_of_upserting import table_files
from serde_lab.runs.directory import load_run
from serde_lab.runs.model import Check

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


def test_a_peer_is_no_record_format() -> None:
    found = answer(run_values(load_run(RUN)))
    assert "against `hudi_spark`" in found.figure_about
    (warned,) = [one.text for one in found.sentences if "by themselves" in one.text]
    assert "Only the work is the same in" in warned
    assert not [one for one in found.sentences if "SerDe accounts" in one.text]


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


FILES = {
    "codec": "zstd",
    "base_files": 8,
    "base_bytes": 47_000_000,
    "row_groups": 8,
    "bloom_bytes": 8_626_484,
    "key_ranges": 8,
    "statistics": "22 of 22",
    "log_files": 16,
    "log_bytes": 89_478_224,
    "log_blocks": "parquet",
}


def tables_of_files(facts: Mapping[str, Mapping[str, int | str]]) -> dict[str, Table]:
    run = load_run(RUN)
    checks = [Check("files_alike", True, "", arm, None, 1, files) for arm, files in facts.items()]
    found = table_files(run_values(replace(run, checks=(*run.checks, *checks))))
    return {table.name: table for table in found}


def test_a_pair_of_tables_whose_files_differ_is_shown_with_the_bytes() -> None:
    peers = [arm.arm for arm in load_run(RUN).header.arms if arm.kind == "peer"]
    one, other = peers[:2]
    differing = {**FILES, "bloom_bytes": 0, "key_ranges": 0, "log_blocks": "avro"}
    tables = tables_of_files(
        {"arrow": FILES, one: {**FILES, "base_bytes": 47_000_100}, other: differing}
    )
    rows = [[cell.text for cell in row] for row in tables["file-pairs"].rows]
    assert rows == [
        ["arrow", one, "alike", "–"],
        [
            "arrow",
            other,
            "differ",
            "log blocks parquet and avro; Bloom filters 8.63 MB and none; key ranges 8 and 0",
        ],
    ]
    listed = [[cell.text for cell in row] for row in tables["table-files"].rows]
    assert {row[0] for row in listed} == {"arrow", one, other}
    assert "8.63 MB" in next(row for row in listed if row[0] == "arrow")


def test_a_run_without_facts_about_files_has_no_such_tables() -> None:
    assert tables_of_files({}) == {}
