"""Costs of a codec run, from medians of made-up cells."""

from __future__ import annotations

from typing import Any

import pytest

from serde_lab.analysis.cell_values import CellValues, CommitValues
from serde_lab.analysis.codec_costs import by_width, codec_costs, records_of, usual_rows
from serde_lab.measure.phases import PhaseSeconds
from serde_lab.report.run.codec import record_table, type_table, width_table

CASES: list[dict[str, Any]] = [
    {"group": "record", "rows": 100, "columns": 17, "type": "", "string_share": None},
    {"group": "type", "rows": 100, "columns": 1, "type": "bool alone", "string_share": None},
    {"group": "type", "rows": 100, "columns": 9, "type": "int64", "string_share": None},
    {"group": "width", "rows": 100, "columns": 20, "type": "", "string_share": 0.5},
]


VERBS = ("from_arrow", "encode", "decode", "to_arrow")
Us = tuple[float, float, float, float]


def codec_round(*cases: Us) -> CellValues:
    """A round whose cases, of 100 rows each, take so many microseconds a record in each verb."""
    commits = [
        CommitValues(
            n,
            {},
            {f"codec.{v}": PhaseSeconds(0.0, t * 100e-6) for v, t in zip(VERBS, us, strict=True)},
        )
        for n, us in enumerate(cases, start=1)
    ]
    return CellValues({}, {}, tuple(commits))


SUMMARY = {
    "arms": [
        {
            "arm": name,
            "commits": [
                {"n": n, "rows": 100, "frame_bytes": 100 * size}
                for n, size in enumerate((180, 80, 144, 200), start=1)
            ],
        }
        for name in ("internal_row", "wrong")
    ]
}
TIMED = {
    "internal_row": {
        1: codec_round(
            (0.1, 0.02, 0.05, 0.2), (0.3, 0.1, 0.1, 0.1), (0.7, 0.1, 0.1, 0.5), (1, 1, 1, 1)
        )
    },
    "wrong": {},
}


def test_a_record_costs_its_verbs_and_bytes() -> None:
    (record,) = records_of(codec_costs(SUMMARY, CASES, TIMED))
    assert record.arm == "internal_row"
    assert (record.write_us, record.read_us, record.both_us) == pytest.approx((0.12, 0.25, 0.37))
    assert record.bytes == 180
    table = record_table([record])
    (row,) = table.rows
    assert [cell.text for cell in row[:5]] == ["internal_row", "100", "0.120", "0.250", "0.370"]
    assert len(row) == len(table.columns)


def test_a_sum_is_the_median_of_the_rounds_sums() -> None:
    """Another verb is slow in each round: the verbs' medians add up to less than any round took."""
    slow = [(9.0, 1.0, 1.0, 1.0), (1.0, 9.0, 1.0, 1.0), (1.0, 1.0, 9.0, 1.0)]
    rounds = {n: codec_round(us) for n, us in enumerate(slow)}
    (record,) = records_of(codec_costs(SUMMARY, CASES[:1], {"internal_row": rounds}))
    assert list(record.verbs_us.values()) == pytest.approx([1, 1, 1, 1])
    assert (record.write_us, record.read_us, record.both_us) == pytest.approx((10, 2, 12))


def test_a_type_costs_what_eight_columns_add_over_eight() -> None:
    costs = [cost for cost in codec_costs(SUMMARY, CASES, TIMED) if cost.group == "type"]
    (int64,) = costs
    assert int64.type == "int64"
    assert int64.verbs_us == pytest.approx(
        {"from_arrow": 0.05, "encode": 0, "decode": 0, "to_arrow": 0.05}
    )
    assert int64.bytes == pytest.approx(8)
    assert usual_rows(costs) == 100
    table = type_table(costs)
    assert [column.heading for column in table.columns] == ["type", "internal_row"]
    assert [[(cell.text, cell.note) for cell in row] for row in table.rows] == [
        [("int64", ""), ("0.100", "8 B")]
    ]


def test_a_width_keeps_its_share_of_strings() -> None:
    costs = codec_costs(SUMMARY, CASES, TIMED)
    assert list(by_width(costs)) == [(20, 0.5)]
    cells = width_table(costs).rows[0]
    assert [cell.text for cell in cells[:3]] == ["20", "50 %", "4.000"]
    assert cells[2].note == "200 B"


def test_a_run_of_commits_has_no_costs() -> None:
    assert codec_costs(SUMMARY, [], TIMED) == []
