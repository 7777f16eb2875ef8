"""The referee: which frames it is given, where it can run, and what it says where it cannot."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from serde_lab.lab.checks import isolation, referee, stand_alone
from serde_lab.lab.checks.referee import REFEREE, Referee
from serde_lab.lab.checks.stand_alone import DecodedArm
from serde_lab.lab.inputs.prepared import CommitInput
from serde_lab.pipeline.exchange.frames import FrameDraw
from serde_lab.records.keys import KeyGenerator
from serde_lab.records.schema import RecordSchema
from serde_lab.serde.interface import SerdeOptions
from serde_lab.verify.contents import TableRows
from serde_lab.verify.table_rules import TableRules

MODULE = "serde_lab.lab.checks.stand_alone"
NO_OTHERS: Any = SimpleNamespace(sent=lambda _arms: {}, judge=lambda *_: [])
"""No rows beside the frames."""


def test_frames_are_drawn_from_all_that_arrive() -> None:
    seen: set[bytes] = set()
    for _ in range(40):
        draw = FrameDraw()
        for part in np.array_split(np.arange(400), 5):
            kept = draw.add([pa.array([], pa.binary()), pa.array(map(_frame, part), pa.binary())])
        assert len(kept) == len(set(kept)) == 32
        seen |= set(kept)
    # a frame that is drawn with probability 0.08 is missed 40 times with one of 0.035
    assert len(seen) > 350


def test_no_more_than_a_mebibyte_is_kept_unless_a_frame_is_larger() -> None:
    sized = pa.array([bytes(300_000)] * 9, pa.binary())
    assert len(FrameDraw().add([sized])) == 3
    assert len(FrameDraw().add([pa.array([bytes(3 << 20)] * 2, pa.binary())])) == 1


def test_where_nothing_can_be_isolated_it_says_why(tmp_path: Path) -> None:
    enclosure = isolation.Enclosure.without_changes_since(time.time())
    missing = enclosure.obstacle("no_such_module", tmp_path)
    assert missing
    if enclosure.obstacle(MODULE, tmp_path) == "":
        assert missing == "ModuleNotFoundError: No module named 'no_such_module'"


@pytest.mark.parametrize(
    ("obstacle", "answer", "said"),
    [
        ("unshare: no", DecodedArm(None), "not isolated: unshare: no"),
        (
            "",
            DecodedArm(None, "no module", bound=False),
            "not isolated: the strategy cannot be loaded there: no module",
        ),
        (
            "",
            DecodedArm(None, "no such ticket"),
            "the referee cannot decode the frames: no such ticket",
        ),
    ],
)
def test_an_arm_whose_frames_were_not_read(
    obstacle: str, answer: DecodedArm, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the frames themselves may speak against an arm, and nothing but them for it."""
    monkeypatch.setattr(referee.isolation.Enclosure, "obstacle", lambda *_: obstacle)
    monkeypatch.setattr(stand_alone, "read_back", lambda sent, *_: dict.fromkeys(sent, answer))
    judge = Referee(None, None, None, NO_OTHERS, tmp_path, 0.0)  # type: ignore[arg-type]
    arms = {"a": ("arrow", SerdeOptions())}
    (found,) = judge.judge(arms, {"a": (b"frame",)}, {"a": None}, {"a": 1}, None)["a"]  # type: ignore[arg-type, dict-item]
    assert (found.name, found.detail) == (REFEREE, said)
    assert found.passed is (None if said.startswith("not isolated") else False)


@pytest.mark.parametrize(
    ("records", "rows_per_frame", "said"),
    [
        (0, 1000, "decodes 0 records from 2 frames, which hold at least 2"),
        (1, 1000, "decodes 1 records from 2 frames, which hold at least 2"),
        (3, 1, "decodes 3 records from 2 frames, which hold 2"),
    ],
)
def test_frames_that_hold_too_few_or_too_many_records_speak_against_an_arm(
    records: int, rows_per_frame: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.record_batch({"k": ["a"] * records})
    monkeypatch.setattr(referee.isolation.Enclosure, "obstacle", lambda *_: "")
    answer = DecodedArm(rows)
    # it counts before it looks at input, schema or table
    monkeypatch.setattr(stand_alone, "read_back", lambda sent, *_: dict.fromkeys(sent, answer))
    judge = Referee(None, None, None, NO_OTHERS, tmp_path, 0.0)  # type: ignore[arg-type]
    arms = {"a": ("arrow", SerdeOptions(rows_per_frame=rows_per_frame))}
    (found,) = judge.judge(arms, {"a": (b"one", b"two")}, {"a": None}, {"a": 1}, None)["a"]  # type: ignore[arg-type, dict-item]
    assert (found.passed, found.detail) == (False, f"the referee {said}")


SCHEMA = RecordSchema(
    pa.schema([pa.field("k", pa.string()), pa.field("n", pa.int64())]), ("k",), ("n",)
)
KEYS = KeyGenerator(SCHEMA)
RULES = TableRules(SCHEMA)
GLOBAL = TableRules(SCHEMA, key_is_global=True)


@pytest.mark.parametrize(
    ("rows", "deleted", "rules", "hops", "said"),
    [
        (["a", "b"], ["x"], RULES, 1, ""),
        (["a", "a"], [], RULES, 1, "1 come more often than the input has them"),
        (["a", "a"], [], RULES, 2, ""),
        (["b", "b", "b"], [], RULES, 1, "1 come more often than the input has them"),
        (["a"], ["x", "a"], RULES, 1, "1 are keys without a row that the input does not delete"),
        # it leaves a partition
        (["a"], ["a"], GLOBAL, 1, ""),
        (["a"], ["a", "c"], GLOBAL, 1, "1 are keys without a row that the input does not delete"),
    ],
)
def test_a_referee_counts_what_it_is_shown(
    rows: list[str],
    deleted: list[str],
    rules: TableRules,
    hops: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A frame may hold a row of the input that stands for others, or keys in their place."""
    upsert = _commit(tmp_path / "upsert", "upsert", ["a", "b", "b"])
    inputs = SimpleNamespace(commits=(upsert, _commit(tmp_path / "delete", "delete", ["x", "y"])))
    decoded = [KEYS.envelop(_rows(rows)), KEYS.envelop_deletes(_rows(deleted))]
    answer = DecodedArm(pa.concat_batches(decoded))
    monkeypatch.setattr(referee.isolation.Enclosure, "obstacle", lambda *_: "")
    monkeypatch.setattr(stand_alone, "read_back", lambda sent, *_: dict.fromkeys(sent, answer))
    judge = Referee(inputs, SCHEMA, rules, NO_OTHERS, tmp_path, 0.0)  # type: ignore[arg-type]
    table = TableRows(pa.Table.from_batches([_rows(["a", "b"])]))
    sent = {"a": (b"frame",)}
    arms = {"a": ("arrow", SerdeOptions(rows_per_frame=9))}
    (found,) = judge.judge(arms, sent, {"a": table}, {"a": hops}, None)["a"]  # type: ignore[arg-type]
    assert (found.passed, found.detail.endswith(said)) == (not said, True)


def _rows(keys: list[str]) -> pa.RecordBatch:
    numbers = pa.array([ord(key) for key in keys], pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.string()), numbers], schema=SCHEMA.data)


def _commit(folder: Path, operation: str, keys: list[str]) -> CommitInput:
    folder.mkdir()
    pq.write_table(pa.Table.from_batches([_rows(keys)]), folder / "part-00000.parquet")
    return CommitInput("c", operation, folder, (folder / "part-00000.parquet",), len(keys), "")


def _frame(number: int) -> bytes:
    return int(number).to_bytes(8, "little")
