"""The storage: create-only writes, whole files, sentences; the same on a folder and on S3."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from serde_lab.errors import StorageError, UsageError
from serde_lab.table.storage.storage import Storage


def test_put_new_never_overwrites(storage: Storage) -> None:
    assert storage.put_new("a/b.txt", b"first")
    assert not storage.put_new("a/b.txt", b"second")
    assert storage.get("a/b.txt") == b"first"


def test_of_many_writers_of_one_name_one_wins(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: storage.put_new("name", bytes([n]) * 1000), range(16)))
    assert won.count(True) == 1
    content = storage.get("name")
    assert content == bytes([won.index(True)]) * 1000


def test_files_are_listed_read_and_removed(storage: Storage) -> None:
    storage.put_new("day=1/x y%2Fé.parquet", pa.py_buffer(b"12345"))
    storage.put_new("day=1/deep/z", b"")
    storage.put_new("top", b"1")
    assert [(f.path, f.size_bytes) for f in storage.list_files()] == [
        ("day=1/deep/z", 0),
        ("day=1/x y%2Fé.parquet", 5),
        ("top", 1),
    ]
    folders, files = storage.list_folder()
    assert folders == ["day=1"]
    assert [f.name for f in files] == ["top"]
    assert storage.list_names("") == ["top"]
    assert storage.list_names("day=1") == ["x y%2Fé.parquet"]
    assert storage.list_names("day=2") == []
    assert storage.open_input("day=1/x y%2Fé.parquet").read() == b"12345"
    storage.delete("top")
    storage.delete("top")
    storage.delete_folder("day=1")
    assert storage.list_files() == []
    assert storage.size_bytes("top") is None
    storage.replace("top", b"2")
    storage.replace("top", b"3")
    assert storage.get("top") == b"3"


def test_a_missing_file_is_a_sentence(storage: Storage) -> None:
    assert storage.get_if_present("none") is None
    with pytest.raises(StorageError, match=r"none: no such file$"):
        storage.get("none")
    with pytest.raises(StorageError, match=r"none: no such file$"):
        storage.open_input("none")


def test_a_storage_travels(storage: Storage) -> None:
    storage.put_new("x", b"1")
    assert pickle.loads(pickle.dumps(storage)).get("x") == b"1"


def test_a_missing_bucket_is_a_sentence(s3_options: dict[str, str]) -> None:
    missing = Storage.open("s3://nowhere/t", **s3_options)
    with pytest.raises(StorageError, match=r"^s3://nowhere/t/x: cannot create: ") as caught:
        missing.put_new("x", b"")
    assert "\n" not in str(caught.value)


def test_an_unreachable_store_is_a_sentence() -> None:
    gone = Storage.open(
        "s3://lake/t",
        endpoint="http://127.0.0.1:9",
        access_key_id="x",
        secret_access_key="y",
        region="us-east-1",
        retry_config={"max_retries": 0},
    )
    with pytest.raises(StorageError, match=r"^s3://lake/t/x: cannot read: "):
        gone.get("x")


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'http://\[' is no storage URL"):
        Storage.open("http://[")
    with pytest.raises(UsageError, match="hdfs"):
        Storage.open("hdfs://somewhere/t")


def test_a_file_url_is_a_local_folder(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    storage = Storage.open(f"file://{tmp_path}/a%20b")
    storage.put_new("x", b"1")
    assert (tmp_path / "a b" / "x").read_bytes() == b"1"
    assert storage.local_path("x") == tmp_path / "a b" / "x"


def test_a_file_url_of_two_slashes_names_a_host(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="names the host 'lake'; that of a local folder is file:///"
    ):
        Storage.open("file://lake/orders")
    assert Storage.open(f"file://localhost{tmp_path}").url == str(tmp_path)
    assert Storage.open(f"file:{tmp_path}").url == str(tmp_path)


@pytest.mark.parametrize("name", ["a#b", "a?b"])
def test_a_url_does_not_end_at_a_mark(name: str, tmp_path: Path) -> None:
    """Apache Hudi takes both for characters of the path; without what follows, tables would become one."""
    storage = Storage.open(f"file://{tmp_path}/{name}/t")
    assert storage.local_path("x") == tmp_path / name / "t" / "x"
    assert Storage.open(f"s3://lake/{name}/t", region="x").connection.prefix == f"{name}/t"


def test_looking_at_a_folder_does_not_make_it(tmp_path: Path) -> None:
    storage = Storage.open(tmp_path / "a" / "b")
    assert storage.get_if_present("x") is None
    assert storage.size_bytes("x") is None
    assert storage.list_files() == []
    assert storage.list_folder("c") == ([], [])
    assert storage.list_names("c") == []
    storage.delete("x")
    assert not (tmp_path / "a").exists()
    assert storage.put_new("c/x", b"1")
    assert [file.path for file in storage.list_files()] == ["c/x"]


def test_a_folder_that_is_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(StorageError, match="cannot create"):
        Storage.open(tmp_path / "a").put_new("x", b"1")
    with pytest.raises(StorageError, match="cannot create"):
        Storage.open(tmp_path / "a" / "b").put_new("x", b"1")


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    """A table that is written there could not be read."""
    with pytest.raises(UsageError, match="the path is not UTF-8"):
        Storage.open(tmp_path / os.fsdecode(b"r\xff"))


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    class Full(Storage):
        def _put(self, path: str, data: object, mode: object) -> None:
            raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match=r"cannot create: .*No space left"):
        Full.open(tmp_path).put_new("x", b"1")
