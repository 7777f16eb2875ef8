"""Inserts fill small files first, then new ones, and each task keeps to its own file groups."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from serde_lab.table.files.file_sizing import (
    BucketAssigner,
    FileSizing,
    InsertRun,
    SmallFile,
    new_file_id,
)

SIZING = FileSizing(max_file_bytes=1000, small_file_limit_bytes=900)


def test_small_files_are_filled_in_order_then_new_ones_until_they_are_full() -> None:
    small = {"p": [SmallFile("a", 700), SmallFile("full", 1000), SmallFile("b", 950)]}
    assigner = BucketAssigner(SIZING, 100, small, seed="s")
    first, second = (new_file_id("s", "p", n) for n in range(2))
    assert assigner.assign("p", 2) == [InsertRun("a", 2)]
    # a had room for three, b for none: half a record does not fit
    assert assigner.assign("p", 12) == [
        InsertRun("a", 1),
        InsertRun(first, 10),
        InsertRun(second, 1),
    ]
    assert assigner.assign("p", 3) == [InsertRun(second, 3)]
    assert list(assigner.new_file_ids) == [first, second]
    assert assigner.assign("p", 0) == []


def test_rows_of_a_new_file_are_stated_where_they_are_not_reckoned() -> None:
    sizing = replace(SIZING, auto_split=False, insert_split_rows=4)
    runs = BucketAssigner(sizing, 100, {}, seed="s").assign("", 9)
    assert [run.rows for run in runs] == [4, 4, 1]
    assert len({run.file_id for run in runs}) == 3


def test_each_row_gets_the_file_of_its_turn() -> None:
    small = {"p": [SmallFile("a", 800)]}
    assigner = BucketAssigner(SIZING, 100, small, seed="s")
    paths = pa.array(["p", "q", "p", "p", "q", "p"])
    new_p, new_q = new_file_id("s", "p", 0), new_file_id("s", "q", 0)
    expected = ["a", new_q, "a", new_p, new_q, new_p]
    keys = pa.array(list("abcdef"))
    assert assigner.assign_rows(paths, keys).to_pylist() == expected
    # the next batch goes on where this one ended
    assert assigner.assign_rows(paths.dictionary_encode().slice(1), keys[1:]).to_pylist() == [
        new_q,
        new_p,
        new_p,
        new_q,
        new_p,
    ]
    none = BucketAssigner(SIZING, 100, small, seed="s").assign_rows(None, keys[:0])
    assert none.to_pylist() == []
    keys = pa.array([f"k{n:02}" for n in range(11)])
    alone = BucketAssigner(SIZING, 100, {}, seed="s").assign_rows(None, keys).to_pylist()
    assert alone == [new_file_id("s", "", 0)] * 10 + [new_file_id("s", "", 1)]


@given(st.permutations([f"k{n % 14}" for n in range(25)]))
def test_the_order_of_rows_does_not_say_where_they_go(keys: list[str]) -> None:
    """A task that is tried again may see its rows in another one."""

    def placed(rows: list[str]) -> dict[str, str]:
        small = {"p": [SmallFile("a", 700)]}
        assigner = BucketAssigner(SIZING, 100, small, seed="s")
        drawn = assigner.assign_rows(pa.array(["p"] * len(rows)), pa.array(rows)).to_pylist()
        found = set(zip(rows, drawn, strict=True))
        assert len(found) == len(set(rows)), "rows of one key are in several files"
        return dict(found)

    assert placed(keys) == placed(sorted(keys))
    assert len(set(placed(keys).values())) > 2


def task_of(file_id: str) -> int:
    return zlib.crc32(file_id.encode()) % 4


def test_tasks_share_no_file_group() -> None:
    small = {"p": [SmallFile(f"f{n}", 900) for n in range(20)]}
    taken = []
    for task in range(4):
        assigner = BucketAssigner(SIZING, 100, small, seed="s", task=task, task_of=task_of)
        runs = assigner.assign("p", 40)
        assert {task_of(run.file_id) for run in runs} == {task}
        taken += [run.file_id for run in runs]
    assert len(set(taken)) == len(taken)
    # no small file was left out, though each task saw only its own
    assert {f.file_id for f in small["p"]} <= set(taken)


def test_equal_seeds_draw_equal_ids_and_others_do_not() -> None:
    def drawn(seed: str, paths: list[str]) -> dict[str, str]:
        assigner = BucketAssigner(SIZING, 100, {}, seed=seed)
        return {path: assigner.assign(path, 1)[0].file_id for path in paths}

    assert drawn("s", ["p", "q"]) == drawn("s", ["q", "p"])
    assert not set(drawn("s", ["p"]).values()) & set(drawn("t", ["p"]).values())


@given(
    sizes=st.lists(st.integers(1, 1200), max_size=6),
    batches=st.lists(st.integers(0, 40), max_size=8),
)
def test_batches_do_not_change_who_goes_where(sizes: list[int], batches: list[int]) -> None:
    """One record at a time, as Hudi assigns them, is what all sizes of batches give."""
    small = {"": [SmallFile(f"f{n}", size) for n, size in enumerate(sizes)]}
    at_once = BucketAssigner(SIZING, 70, small, seed="s")
    one_by_one = BucketAssigner(SIZING, 70, small, seed="s")
    together = [
        run.file_id for n in batches for run in at_once.assign("", n) for _ in range(run.rows)
    ]
    singly = [one_by_one.assign("", 1)[0].file_id for _ in range(sum(batches))]
    assert together == singly
    for file_id, rows in Counter(together).items():
        size = sizes[int(file_id[1:])] if file_id in {f.file_id for f in small[""]} else 0
        assert size + 70 * rows <= 1000


def test_an_id_reads_as_hudis_own() -> None:
    drawn = new_file_id("s", "p", 0)
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}-0", drawn
    )
