"""How records become files: the arms write equal tables, and the documents quote the committed trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serde_lab.errors import OptionError
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import Records
from tests.pipeline.lab_table import FIRST, MOR, PARTITIONED, SECOND, LabTable, table_of
from tests.pipeline.test_record_mergers import INSTANT, contents
from tests.serde.to_files import FEW_ROWS, RESULT, WAYS, Case, lineitem, of_ways

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", [{}, MOR, PARTITIONED], ids=["cow", "mor", "partitioned"])
def test_both_arms_of_the_typed_row_write_the_same_tables(
    kind: dict[str, str], tmp_path: Path
) -> None:
    found = []
    for arm in ("columns", "batches"):
        table = LabTable(tmp_path / arm, kind)
        for batch in (FIRST, SECOND):
            options = {"serde_lab.strategy": "internal_row", "serde_lab.strategy.to_files": arm}
            table.upsert(batch, **options)
        table.check()
        base_files = [contents(file) for file in sorted(table.path.rglob("*.parquet"))]
        logs = sorted(table.path.rglob(".*.log.*"))
        assert bool(logs) == (kind is MOR)
        # as text, in which NaN equals NaN
        found.append((repr(base_files), [INSTANT.sub(b"", f.read_bytes()) for f in logs]))
    assert found[0] == found[1]


def test_an_unknown_arm_is_refused(tmp_path: Path) -> None:
    options = {"serde_lab.strategy": "internal_row", "serde_lab.strategy.to_files": "rows"}
    with pytest.raises(OptionError, match="to_files = 'rows', expected 'columns' or 'batches'"):
        LabTable(tmp_path).upsert(FIRST, **options)


def test_the_arm_asks_for_whole_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    whole = Records.to_rows
    monkeypatch.setattr(Records, "to_rows", lambda self: asked.append(1) or whole(self))
    for arm, expected in (("columns", False), ("batches", True)):
        asked.clear()
        options = {"serde_lab.strategy": "internal_row", "serde_lab.strategy.to_files": arm}
        LabTable(tmp_path / arm).upsert(FIRST, **options)
        assert bool(asked) == expected, arm


def test_the_schema_is_made_once_however_many_columns_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []
    schema_of = RecordSchema.batch_schema.fget
    assert schema_of is not None
    counted = property(lambda self: made.append(1) or schema_of(self))
    monkeypatch.setattr(RecordSchema, "batch_schema", counted)
    counts = []
    for columns in (1, 50):
        made.clear()
        rows = table_of(FIRST)
        for number in range(columns):
            rows = rows.append_column(f"c{number}", rows.column("n"))
        options = {"serde_lab.strategy": "arrow"}
        LabTable(tmp_path / str(columns), schema=rows.schema).upsert(rows, **options)
        counts.append(len(made))
    assert counts[0] == counts[1]


def test_all_ways_of_the_trial_write_the_same_bytes(tmp_path: Path) -> None:
    schema, batch = lineitem(20_000, tmp_path)
    case = Case.of("internal_row", "batch", schema, batch)
    for kind in ("base file", "log block"):
        found = of_ways(case, schema, kind, 1, len(batch))
        assert list(found) == list(WAYS)
        assert all(one["same bytes"] is True for one in found.values()), kind  # type: ignore[index]


def test_the_documents_quote_the_committed_trial() -> None:
    trial = json.loads(RESULT.read_text())
    text = (ROOT / "docs/trials.md").read_text()
    for way in WAYS:
        cells = [way]
        for kind in trial["typed_row"].values():
            assert kind[way]["same bytes"] is True
            cells += [shown(kind[way][part]) for part in ("convert", "all")]
            cells.append("1" if way == "whole batches" else shown(kind[way]["ratio"]))
        assert f"| {' | '.join(cells)} |" in text, cells
    for name, found in trial["strategies"].items():
        cells = [f"`{name.split()[0]}` {name.split()[1]}"]
        cells += [shown(found[way]) for way in ("whole batches", "columns", "ratio")]
        assert f"| {' | '.join(cells)} |" in text, cells
    assert f"{shown(trial['typed_row_fixed_columns'])} µs" in text
    assert f"{trial['rows']:,} records" in text
    assert f"{FEW_ROWS:,} records" in text
    assert f"{trial['rounds']} rounds" in text
    assert trial["machine"] in text


def shown(figures: list[float]) -> str:
    """A median with its range."""
    median, least, most = (f"{figure:.2f}" for figure in figures)
    return f"{median} ({least} to {most})"
