"""Parts of equal size in input order; a folder is finished, unfinished, or somebody else's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serde_lab.errors import UsageError
from serde_lab.inputs.parts import MANIFEST, SPILL, UNFINISHED, PartFolder, write_parts

SCHEMA = pa.schema([("i", pa.int64())])


def tables(sizes: list[int]) -> Iterator[pa.Table]:
    start = 0
    for size in sizes:
        yield pa.table({"i": range(start, start + size)}, schema=SCHEMA)
        start += size


def finish(folder: Path, sizes: list[int], parts: int) -> PartFolder:
    target = PartFolder(folder)
    target.begin()
    made = list(write_parts(folder, tables(sizes), SCHEMA, sum(sizes), parts))
    target.finish({"sizes": sizes}, made, {"note": 1})
    return target


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(0, 50), max_size=5), parts=st.integers(1, 9))
def test_parts_are_equal_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], parts: int
) -> None:
    folder = tmp_path_factory.mktemp("parts")
    manifest = finish(folder, sizes, parts).manifest()
    assert manifest is not None
    files = manifest.files(folder)
    assert files == sorted(folder.glob("*.parquet"))
    read = [pq.read_table(file)["i"].to_pylist() for file in files]
    assert [i for part in read for i in part] == list(range(sum(sizes)))
    lengths = [len(part) for part in read]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == [part.rows for part in manifest.parts]
    assert manifest.rows == sum(sizes)


def test_contents_count_not_cuts(tmp_path: Path) -> None:
    first = finish(tmp_path / "a", [10, 10], 2).manifest()
    again = finish(tmp_path / "b", [3, 7, 10], 2).manifest()
    other = finish(tmp_path / "c", [10, 11], 2).manifest()
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.content == again.content != other.content


def test_a_missing_or_cut_part_makes_it_unfinished(tmp_path: Path) -> None:
    for damage in ("unlink", "cut"):
        target = finish(tmp_path / damage, [10], 2)
        part = tmp_path / damage / "part-00001.parquet"
        assert not target.is_unfinished()
        if damage == "unlink":
            part.unlink()
        else:
            part.write_bytes(part.read_bytes()[:-1])
        assert target.manifest() is None
        assert target.is_unfinished()


@settings(max_examples=60, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), of=st.sampled_from("mp"))
def test_any_other_bit_makes_it_unfinished(
    tmp_path_factory: pytest.TempPathFactory, where: float, bit: int, of: str
) -> None:
    target = finish(tmp_path_factory.mktemp("bits"), [300], 2)
    file = target.folder / (MANIFEST if of == "m" else "part-00001.parquet")
    data = bytearray(file.read_bytes())
    # the last byte of a manifest is the end of its line
    data[int(where * (len(data) - 1))] ^= 1 << bit
    file.write_bytes(data)
    assert target.manifest() is None
    assert target.is_unfinished()


def test_a_damaged_manifest_makes_it_unfinished(tmp_path: Path) -> None:
    target = finish(tmp_path / "x", [10], 1)
    manifest = tmp_path / "x" / MANIFEST
    for content in ("", "{}", "[]", "1", "[" * 9999, json.dumps({"format_version": 99}), "\xff"):
        manifest.write_text(content, encoding="latin-1")
        assert target.manifest() is None
        assert target.is_unfinished()


def test_a_folder_without_its_manifest_is_done_again(tmp_path: Path) -> None:
    target = PartFolder(tmp_path / "x")
    target.begin()
    made = write_parts(target.folder, tables([10]), SCHEMA, 10, 3)
    next(made)
    assert target.is_unfinished()
    assert (target.folder / UNFINISHED).exists()
    target.begin()
    assert [p.name for p in target.folder.iterdir()] == [UNFINISHED]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    for name in ("mine.txt", "part-00000.parquet", "part-00000-c2a1.snappy.parquet"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_text("precious")
        with pytest.raises(UsageError, match=f"contains the foreign file '{name}'"):
            PartFolder(folder).begin()
        assert (folder / name).read_text() == "precious"


def test_manifests_are_hidden_from_readers(tmp_path: Path) -> None:
    import pyarrow.dataset as ds

    finish(tmp_path / "x", [10], 2)
    assert ds.dataset(tmp_path / "x").count_rows() == 10


@pytest.mark.parametrize(
    "left",
    [
        [f".{UNFINISHED}.77"],
        [UNFINISHED, f"{SPILL}/duckdb_temp_storage-0.tmp", "part-00000.parquet"],
        [UNFINISHED, f".{MANIFEST}.77", "part-00000.parquet"],
        [MANIFEST, UNFINISHED, "part-00000.parquet"],
    ],
    ids=["before the marker", "keys were counted", "before the manifest", "after the manifest"],
)
def test_whatever_a_kill_leaves_is_done_again(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    assert finish(tmp_path, [10], 2).manifest() is not None
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [MANIFEST, "part-00000.parquet", "part-00001.parquet"]
