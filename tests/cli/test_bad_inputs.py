"""What a user may get wrong, or a machine may lack, ends in one sentence and the right exit status."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import serde_lab
from serde_lab.cli.app import main
from serde_lab.errors import StorageError
from serde_lab.lab.estimates import _size
from serde_lab.lab.run_settings import KeptTables
from serde_lab.runs.model import Check
from serde_lab.runs.writer import RunWriter
from serde_lab.serde.arrow.records import ArrowStrategy
from tests.cli.conftest import Call
from tests.lab.small_scenario import rows
from tests.runs.made_up_runs import header, small_run, whole_cell

Write = Callable[..., Path]
LONG = "a" * 300
TPCH = """
title = "t"
question = "q"
[data]
source = "tpch"
table = "lineitem"
scale_factor = {scale_factor}
[[commit]]
[[arm]]
name = "arrow"
strategy = "arrow"
"""


@pytest.fixture(autouse=True)
def _without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing a report takes longer than all else here."""
    monkeypatch.setattr("serde_lab.cli.run_table.write_report", lambda *_: Path())


@pytest.mark.parametrize(
    "arguments",
    [("validate", LONG), ("validate", f"{LONG}.toml"), ("run", LONG), ("run", f"{LONG}.toml")],
    ids=["name", "file", "run", "run of a file"],
)
def test_a_name_that_is_too_long(arguments: tuple[str, ...], call: Call) -> None:
    said = call(*arguments)
    assert said.status == 2
    assert "File name too long" in said.sentence
    assert len(said.sentence) < 400


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("list", "--runs", "--results"), "there is no run under nowhere"),
        (("baseline", "list", "--baselines"), "there is no baseline under nowhere"),
    ],
    ids=["runs", "baselines"],
)
def test_an_empty_list_says_where_it_looked(
    command: tuple[str, ...], words: str, call: Call
) -> None:
    said = call(*command, "nowhere")
    assert (said.status, words in said.sentence) == (0, True)


def test_a_run_whose_name_is_too_long(call: Call) -> None:
    assert "File name too long" in call("show", LONG).sentence


DOCUMENTS = {
    "arrays in arrays": ("a = " + "[" * 5000, "nested too deeply"),
    "closed arrays in arrays": ("a = " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    "a key of many parts": (
        "a" + ".a" * 50_000 + " = 1",
        "line 1 has a key of more than 100 parts",
    ),
    "a table of many parts": (
        "[a" + ".a" * 50_000 + "]",
        "line 1 has a key of more than 100 parts",
    ),
    "a large file": ("# " + "x" * (1 << 20), "is larger than 1,048,576 bytes"),
    "a number of many digits": ("a = " + "9" * 5000, "a number has thousands of digits"),
    "a number of 65 bits": (f"a = {1 << 64}", "expected a number of 64 bits"),
    "a long key": ("k" * 100_000 + " = 1", "is an unknown key"),
    "a large scale factor": (TPCH.format(scale_factor="1e308"), "a number up to 100000"),
}


@pytest.mark.parametrize("case", DOCUMENTS)
def test_documents_that_no_scenario_is(case: str, call: Call, tmp_path: Path) -> None:
    text, words = DOCUMENTS[case]
    (tmp_path / "s.toml").write_text(text)
    said = call("validate", "s.toml")
    assert said.status == 2
    assert words in said.messages
    assert len(said.messages) < 3000


def test_deep_values_of_an_override(call: Call) -> None:
    assert call("validate", "smoke", "--set", f"a={'[' * 5000}").status == 2


def test_a_byte_order_mark_is_no_fault(call: Call, scenario_file: Write) -> None:
    file = scenario_file()
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert call("validate", file).status == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "n" * 300}, "name: has 300 characters, expected 100 at most"),
        ({"arm": [{"name": "n" * 300, "strategy": "arrow"}]}, "expected 100 at most"),
        (
            {"arm": [{"name": "a", "strategy": "arrow", "options": {"rows_per_frame": 1 << 63}}]},
            "rows_per_frame",
        ),
        ({"measure": {"exchange": "inprocess", "seed": -1}}, "measure.seed"),
    ],
    ids=["scenario name", "arm name", "rows per frame", "seed"],
)
def test_values_that_cannot_be(
    change: dict[str, Any], words: str, call: Call, scenario_file: Write
) -> None:
    said = call("validate", scenario_file(change=lambda document: document.update(change)))
    assert said.status == 2
    assert words in said.sentence


def test_a_commit_of_one_row_is_measured(call: Call, scenario_file: Write) -> None:
    def one_row(document: Any) -> None:
        document["commit"] = [{"rows": 1}]

    said = call("run", scenario_file(change=one_row), "--cache", "cache")
    assert said.status == 0, said.messages


NOT_UTF_8 = os.fsdecode(b"r\xff")


def test_paths_that_are_not_utf_8_are_refused(
    call: Call, scenario_file: Write, tmp_path: Path
) -> None:
    """pyarrow and DuckDB open no files there."""

    def relative(document: Any) -> None:
        document["data"]["path"] = "rows.parquet"

    said = call("run", scenario_file(), "--cache", NOT_UTF_8)
    assert (said.status, said.sentence.partition(" (")[0]) == (
        2,
        r"serde-lab: the cache 'r\udcff' has a name that is not UTF-8",
    )
    folder = tmp_path / NOT_UTF_8
    folder.mkdir()
    inside = Path(scenario_file(change=relative)).rename(folder / "s.toml")
    said = call("validate", inside)
    assert said.status == 2
    assert said.sentence.endswith("which is not UTF-8")
    assert not Path("results").exists()


@pytest.mark.parametrize("folder", ["two\nlines", "a?b", "a\\b", NOT_UTF_8])
def test_a_work_folder_that_readers_cannot_open(
    folder: str, call: Call, scenario_file: Write
) -> None:
    said = call("run", scenario_file(), "--cache", "cache", "--work", folder)
    assert said.status == 2
    assert "--work" in said.messages
    assert not Path("results").exists()


def test_sizes_have_a_unit_that_shows_them() -> None:
    found = [_size(size) for size in (0, 480_000, 5_300_000, 59_100_000_000, 1_200_000_000_000)]
    assert found == ["0.0 kB", "480.0 kB", "5.3 MB", "59.1 GB", "1.2 TB"]


# -- rows ------------------------------------------------------------------------------------------------


def _with(name: str, values: list[Any]) -> pa.Table:
    table = rows(50)
    if name in table.schema.names:
        table = table.drop_columns(name)
    return table.append_column(name, [values])


@pytest.mark.parametrize(
    ("table", "data", "words"),
    [
        (_with("id", [None, *range(49)]), {}, "'id', the record key, is null in 1 of 50"),
        (_with("id", [1, *range(49)]), {}, "id is not unique"),
        (_with("k", ["", *map(str, range(49))]), {"key": "k"}, "'k' is null or empty in 1 rows"),
        (_with("p", ["a/b"] * 50), {"partition": "p"}, "'p' holds 'a/b'"),
    ],
    ids=["null key", "repeated key", "empty key", "partition value"],
)
def test_rows_are_looked_at_before_anything_is_made(
    table: pa.Table, data: dict[str, Any], words: str, call: Call, scenario_file: Write
) -> None:
    file = scenario_file(rows=table, data=data)
    assert call("validate", file).status == 0
    for said in (call("validate", file, "--deep"), call("run", file, "--cache", "cache")):
        assert said.status == 2
        assert words in said.sentence
    assert not list(Path().glob("cache/inputs/*/*"))
    assert not Path("results").exists()


def test_deep_has_every_strategy_encode_and_decode(call: Call, scenario_file: Write) -> None:
    file = scenario_file(["arrow", "avro", "internal_row", "pickle"])
    assert call("validate", file, "--deep").status == 0


@pytest.mark.usefixtures("cheating")
def test_deep_names_the_arm_that_raises(
    call: Call, scenario_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scenario_file(["pickle", "arrow"])

    def lacking(*_: Any) -> Any:
        raise KeyError("decimal")

    with monkeypatch.context() as patch:
        patch.setattr("serde_lab.serde.arrow.records.BoundArrow.from_arrow", lacking)
        said = call("validate", file, "--deep")
    assert said.status == 1
    assert "arm 'arrow' raised KeyError: 'decimal'" in said.sentence
    # and wherever a plug-in is asked before anything is measured
    for method in ("bind", "fairness"):
        with monkeypatch.context() as patch:
            patch.setattr(ArrowStrategy, method, lacking)
            for said in (call("validate", file), call("run", file, "--cache", "cache")):
                assert said.status == 1
                assert "arm 'arrow' raised KeyError: 'decimal'" in said.sentence


# -- kept tables -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_folder_of_the_users_is_not_deleted(call: Call, scenario_file: Write) -> None:
    file, mine = scenario_file(), Path("out/arrow/photos/one.jpg")
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    keep = ("--cache", "cache", "--keep-tables", "out")
    for more in ((), ("--dry-run",)):
        said = call("run", file, *keep, *more)
        assert said.status == 2
        assert "out/arrow is not empty" in said.sentence
    assert mine.read_text() == "mine"
    assert not Path("results").exists()
    said = call("run", file, *keep, "--replace")
    assert said.status == 0, said.messages
    assert not mine.exists()
    # the mark is nothing to a reader of the table, and lets the next run replace it
    assert call("validate", "out/arrow", "--deep").status == 0
    assert call("run", file, *keep).status == 0


def test_a_table_that_cannot_be_kept_leaves_the_run_as_it_is(
    call: Call, scenario_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageError("out/arrow cannot be written: No space left on device")

    monkeypatch.setattr(KeptTables, "keep", full)
    file = scenario_file()
    said = call("run", file, "--cache", "cache", "--keep-tables", "out", "--format", "csv")
    assert said.status == 1
    assert (
        "the table of arrow was not copied: out/arrow cannot be written: No space" in said.messages
    )
    assert call("show").status == 0


# -- runs --------------------------------------------------------------------------------------------------


def test_a_run_that_was_killed_is_not_called_running(call: Call) -> None:
    writer = RunWriter.create(Path("results"), header(arms=()))
    listed = call("list", "--runs", "--format", "csv")
    assert ",running," in listed.out
    said = call("show")
    assert "still in progress" in said.messages
    writer.close()  # as the kernel does when a process is killed
    assert ",interrupted," in call("list", "--runs", "--format", "csv").out
    assert f"--resume {writer.path}" in call("show").messages


@pytest.mark.slow
def test_ctrl_c_speaks_of_resume_once_there_is_a_run(
    call: Call, scenario_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    file = scenario_file()
    with monkeypatch.context() as patch:
        patch.setattr("serde_lab.lab.run_points.prepare_inputs", interrupted)
        said = call("run", file, "--cache", "cache")
    assert (said.status, said.sentence) == (130, "serde-lab: interrupted")
    with monkeypatch.context() as patch:
        patch.setattr("serde_lab.lab.cells.table_cells.TableCells.cell", interrupted)
        said = call("run", file, "--cache", "cache")
    (run,) = Path("results/small").iterdir()
    assert said.status == 130
    assert f"`serde-lab run --resume {run}` continues" in said.sentence
    measured = (run / "samples.jsonl").read_bytes()
    assert call("run", "--resume", "--dry-run").status == 2
    header = (run / "run.json").read_text()
    for part, key, words in (
        ("code_version", "git_commit", "its code changed: git_commit was another"),
        (
            "spark_conf",
            "spark.driver.memory",
            "its Spark settings changed: spark.driver.memory was a",
        ),
        ("data_checksums", "commit/0", "its input data changed: commit/0 was another"),
    ):
        other = json.loads(header)
        other[part][key] = "another"
        (run / "run.json").write_text(json.dumps(other))
        said = call("run", "--resume", "--cache", "cache")
        assert said.status == 1
        assert words in said.sentence
    (run / "run.json").write_text(header)
    assert (run / "samples.jsonl").read_bytes() == measured
    # without a run it is the latest, wherever the option stands
    assert call("run", "--resume", "--cache", "cache").status == 0
    said = call("run", "--cache", "cache", "--resume")
    assert "is complete: there is nothing to resume" in said.sentence


# -- where words go ------------------------------------------------------------------------------------------


def _wrong_run() -> Path:
    with RunWriter.create(Path("results"), header()) as writer:
        whole_cell(writer, "r01-pickle", [1.0])
        writer.check(Check("rows", False, "differ – é", arm="pickle", cell="r01-pickle", round=1))
        writer.finish("complete")
    return writer.path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
@pytest.mark.usefixtures("folder")
def test_a_terminal_without_the_characters(
    form: str, errors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_run(Path("results"))
    out, messages = (io.TextIOWrapper(io.BytesIO(), "ascii", errors) for _ in range(2))
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", messages)
        assert main(["show", "--format", form]) == 0
        assert main(["show", "é", "--format", form]) == 1
    messages.flush()
    assert b"\\u00e9" in messages.buffer.getvalue()  # type: ignore[attr-defined]


@pytest.mark.usefixtures("folder")
def test_a_reader_who_leaves_does_not_change_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    _wrong_run()
    for form in ("table", "json"):
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as pipe, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", pipe)
            assert main(["show", "--format", form]) == 4


@pytest.mark.usefixtures("folder")
def test_a_full_disk_behind_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(["list", "--format", "csv"]) == 1
    assert capsys.readouterr().err == "serde-lab: standard output: No space left on device\n"


def test_python_without_docstrings() -> None:
    command = [sys.executable, "-OO", "-m", "serde_lab", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("serde-lab: -OO and PYTHONOPTIMIZE=2 leave out docstrings")


def test_a_standard_output_that_is_closed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["list"]) == 1
    assert capsys.readouterr().err == "serde-lab: standard output is closed\n"


def test_what_the_system_refuses_is_no_internal_error(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "results/x")

    monkeypatch.setattr("serde_lab.runs.directory.resolve_run", refused)
    said = call("show")
    assert (said.status, said.sentence) == (1, "serde-lab: results/x: Read-only file system")


def test_the_python_interface_can_be_found() -> None:
    assert {"read", "write", "write_stream", "batch_writer"} <= set(dir(serde_lab))
