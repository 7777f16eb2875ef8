"""`--keep-tables` deletes nothing that an earlier run did not keep there, and leaves no half of a table."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import StorageError, UsageError
from serde_lab.lab import run_settings
from serde_lab.lab.run_settings import MARK, KeptTables


@pytest.fixture
def table(tmp_path: Path) -> Path:
    made = tmp_path / "table"
    (made / ".hoodie").mkdir(parents=True)
    (made / "rows.parquet").write_text("rows")
    return made


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_table_of_an_earlier_run_is_replaced(tmp_path: Path, table: Path) -> None:
    kept = KeptTables(tmp_path / "new" / "out")
    kept.check(["arrow"])
    kept.keep(table, "arrow")
    assert (kept.folder / "arrow" / MARK).is_file()
    (table / "rows.parquet").write_text("others")
    kept.check(["arrow"])
    kept.keep(table, "arrow")
    assert (kept.folder / "arrow" / "rows.parquet").read_text() == "others"
    assert [path.name for path in kept.folder.iterdir()] == ["arrow"]


def test_rows_without_a_table_format_are_kept_and_replaced(tmp_path: Path) -> None:
    rows = tmp_path / "v1"
    rows.mkdir()
    (rows / "part-0.parquet").write_text("rows")
    kept = KeptTables(tmp_path / "out")
    for _ in range(2):
        kept.keep(rows, "sql_merge")
        kept.check(["sql_merge"])
    assert set(contents(kept.folder)) == {f"sql_merge/{MARK}", "sql_merge/part-0.parquet"}


def test_a_folder_with_anything_else_is_replaced_only_on_demand(
    tmp_path: Path, table: Path
) -> None:
    photos = tmp_path / "out" / "arrow" / "photos"
    photos.mkdir(parents=True)
    (photos / "one.jpg").write_text("mine")
    kept = KeptTables(tmp_path / "out")
    with pytest.raises(UsageError, match=r"out/arrow is not empty.*--replace"):
        kept.check(["avro", "arrow"])
    with pytest.raises(UsageError, match="is not empty"):  # made while the run was measured
        kept.keep(table, "arrow")
    assert contents(kept.folder) == {"arrow/photos/one.jpg": "mine"}
    allowed = KeptTables(kept.folder, replace=True)
    allowed.check(["arrow"])
    allowed.keep(table, "arrow")
    assert set(contents(kept.folder)) == {f"arrow/{MARK}", "arrow/rows.parquet"}


def test_an_empty_folder_is_taken(tmp_path: Path, table: Path) -> None:
    (tmp_path / "out" / "arrow").mkdir(parents=True)
    KeptTables(tmp_path / "out").check(["arrow"])
    KeptTables(tmp_path / "out").keep(table, "arrow")
    assert (tmp_path / "out" / "arrow" / "rows.parquet").is_file()


def _link(target: Path) -> None:
    elsewhere = target.parent.parent / "elsewhere"
    elsewhere.mkdir()
    target.symlink_to(elsewhere)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Path.touch, "is a file"),
        (_link, "is a link"),
        (lambda path: path.symlink_to("nowhere"), "is a link"),
    ],
    ids=["file", "link", "dangling link"],
)
@pytest.mark.parametrize("replace", [False, True])
def test_files_and_links_are_refused(
    make: Callable[[Path], None], problem: str, replace: bool, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    make(tmp_path / "out" / "arrow")
    with pytest.raises(UsageError, match=problem):
        KeptTables(tmp_path / "out", replace).check(["arrow"])
    assert os.path.lexists(tmp_path / "out" / "arrow")


def test_a_file_or_a_read_only_folder_above_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match="is not a folder"):
            KeptTables(folder).check(["arrow"])
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs the tests may be root
    with pytest.raises(UsageError, match="cannot be written"):
        KeptTables(tmp_path / "out").check(["arrow"])


def test_two_scenarios_do_not_keep_one_table_over_the_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="several scenarios have an arm 'arrow'"):
        KeptTables(tmp_path).check(["arrow", "avro", "arrow"])


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_what_was_there(
    there: bool, tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = KeptTables(tmp_path / "out")
    if there:
        kept.keep(table, "arrow")
    kept.folder.mkdir(exist_ok=True)
    before = contents(kept.folder)

    def full(source: str, target: str, **_: object) -> None:
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)

    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, full, False, False))
    with pytest.raises(StorageError, match=r"out/arrow cannot be written.*No space left"):
        kept.keep(table, "arrow")
    assert contents(kept.folder) == before
    assert [path.name for path in kept.folder.iterdir()] == (["arrow"] if there else [])


def test_a_run_that_begins_takes_no_folder_that_another_just_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs may begin at once: a folder is not abandoned before its run has locked it."""
    honest = run_settings.lock_file

    def late(file: Any, **how: bool) -> bool:
        monkeypatch.setattr(run_settings, "lock_file", honest)
        run_settings.remove_abandoned(tmp_path)
        return honest(file, **how)

    monkeypatch.setattr(run_settings, "lock_file", late)
    with run_settings.work_folder(tmp_path) as folder:
        assert folder.is_dir()
        run_settings.remove_abandoned(tmp_path)
        assert folder.is_dir()
    left = tmp_path / folder.name
    left.mkdir()
    (left / ".lock").touch()
    run_settings.remove_abandoned(tmp_path)
    assert not left.exists()
