"""Each exit status where it belongs, and one sentence that names what is wrong."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from serde_lab import __main__ as command
from serde_lab.cli.app import EXIT_STATUSES, main
from serde_lab.errors import UsageError, worst
from serde_lab.lab import runner
from tests.cli.conftest import Call
from tests.lab.small_scenario import rows

Write = Callable[..., Path]


def _run(file: Path, *more: str) -> list[str]:
    return ["run", str(file), "--cache", "cache", *more]


@pytest.mark.slow
def test_0_a_run_and_everything_that_reads_it(
    call: Call, scenario_file: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = scenario_file()
    assert call("validate", file).status == 0
    planned = call("run", file, "--dry-run")
    assert (planned.status, Path("results").exists()) == (0, False)
    assert "1 cells" in planned.messages
    said = call(*_run(file, "--format", "json", "--keep-tables", "tables"))
    assert said.status == 0, said.messages
    summary = json.loads(said.out)
    assert summary["arms"][0]["seconds"]["median"] > 0
    assert Path("tables/arrow/.hoodie/hoodie.properties").is_file()
    assert call("show").status == 0
    assert json.loads(call("show", "latest", "--format", "json").out)["scenario"] == "small"
    assert "small" in call("list", "--runs").out
    said = call("report")
    assert said.status == 0
    assert Path(said.out.removeprefix("report: ").strip()).read_text().startswith("<!")
    (run,) = Path("results/small").iterdir()
    monkeypatch.chdir(run)
    assert call("report", ".").out.endswith(f"/reports/small-{run.name}.html\n")


def test_2_a_long_run_says_before_how_long_it_takes(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("stopped before anything ran")

    monkeypatch.setattr(runner, "run_scenario", refuse)
    long, short = (
        call("run", "tpch_all", *more)
        for more in ((), ("--strategy", "arrow", "--rounds", 1, "--set", "data.scale_factor=0.01"))
    )
    assert (long.status, short.status) == (2, 2)
    assert re.search(r"^tpch_all: about \d+ minutes \(estimated from", long.messages, re.MULTILINE)
    assert "minutes" not in short.messages


def test_0_a_doctor_who_finds_nothing_missing(call: Call) -> None:
    assert call("doctor").status == 0


def test_1_a_doctor_who_finds_something_missing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = call("doctor", "--results", "file")
    assert said.status == 1
    assert "results folder" in said.sentence


@pytest.mark.usefixtures("cheating")
@pytest.mark.slow
def test_4_and_1_wrong_answers_and_arms_that_raise(call: Call, scenario_file: Write) -> None:
    file = scenario_file(["arrow", "drops_a_column", "raises"])
    kept = Path("out/drops_a_column/.hoodie/serde_lab.kept")
    kept.parent.mkdir(parents=True)
    kept.touch()
    said = call(
        *_run(file, "--strategy", "drops_a_column", "--strategy", "arrow", "--keep-tables", "out")
    )
    assert said.status == 4
    assert "amount" in said.messages
    # an earlier run's table is not replaced by a wrong one
    assert "the table of drops_a_column was not copied: " in said.messages
    assert list(kept.parent.parent.rglob("*")) == [kept.parent, kept]
    assert Path("out/arrow/.hoodie/hoodie.properties").is_file()
    assert call("show").status == 4
    # an arm that raised is worse; what was measured stands all the same
    said = call(*_run(file, "--format", "json"))
    assert said.status == 1
    assert "ValueError: this arm raises" in said.messages
    arms = {arm["arm"]: arm for arm in json.loads(said.out)["arms"]}
    assert arms["arrow"]["seconds"]["median"] > 0
    assert arms["drops_a_column"]["seconds"] is None
    assert call(*_run(file, "--strategy", "raises")).status == 1
    assert (call("show").status, call("report").status) == (1, 1)


@pytest.mark.usefixtures("cheating")
@pytest.mark.slow
def test_the_worst_of_several_scenarios_wins(call: Call, scenario_file: Write) -> None:
    wrong = scenario_file(["drops_a_column"])
    wrong = wrong.rename(wrong.with_name("wrong.toml"))
    right = scenario_file(["arrow"])
    assert call("run", wrong, right, "--cache", "cache").status == 4
    assert len(list(Path("results/small").iterdir())) == 2


@pytest.mark.slow
def test_130_ctrl_c(call: Call, scenario_file: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    file = scenario_file()
    with monkeypatch.context() as patch:
        patch.setattr("serde_lab.lab.cells.table_cells.TableCells.cell", interrupted)
        said = call(*_run(file))
    assert said.status == 130
    assert "interrupted; what was measured is kept" in said.sentence
    said = call("run", "--resume", "latest", "--cache", "cache")
    assert said.status == 0, said.messages


def test_130_ctrl_c_while_the_command_is_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(MetaPathFinder):
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "serde_lab.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "serde_lab.cli.app")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        command.main()
    assert left.value.code == 130
    assert capsys.readouterr().err == "serde-lab: interrupted\n"


def test_an_error_of_a_scenario_names_its_keys_and_keeps_its_status() -> None:
    from serde_lab.errors import DataError, LabError
    from serde_lab.lab.plan import in_words_of_scenarios

    hint = "set hoodie.datasource.write.partitionpath.urlencode=true"
    with pytest.raises(LabError) as caught, in_words_of_scenarios():
        raise DataError("hoodie.index.type is BUCKET", hint)
    assert str(caught.value) == "table.index is BUCKET (set table.url_encode=true)"
    assert caught.value.exit_status == 2
    with pytest.raises(DataError, match="a null key"), in_words_of_scenarios():
        raise DataError("a null key")


def test_each_problem_of_a_scenario_is_on_a_line_of_its_own(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    file.write_text('title = "x"\nfoo = 1\n"b\\nar" = 2\n')
    said = call("validate", str(file))
    assert said.status == 2
    lines = said.messages.splitlines()
    assert lines[0] == f"serde-lab: {file}: {len(lines) - 1} problems:"
    assert {line.split(":")[0] for line in lines[1:]} >= {"  question", "  foo", r"  b\nar"}


def test_the_order_of_the_contract() -> None:
    order = (1, 2, 4, 3, 5, 0)
    for better, other in itertools.combinations(order, 2):
        assert worst([better, other]) == worst([other, better]) == better
    assert worst([]) == 0
    assert worst([4, 130, 1]) == 130


def test_help_lists_every_status(call: Call) -> None:
    said = call("--help")
    assert said.status == 0
    for line in EXIT_STATUSES.strip().splitlines():
        words = line.strip().removesuffix("\\n").split()
        assert " ".join(words[:3]) in " ".join(said.out.split())


def _null(column: str) -> pa.Table:
    table = rows(50)
    at = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    return table.set_column(at, column, pa.array([None, *values[1:]], table.schema.field(at).type))


def _set(*keys: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        document[keys[-1]] = value

    return change


UNSIGNED = rows(50).append_column("count", pa.array(range(50), pa.uint32()))
NESTED_TIME = rows(50).append_column("at", pa.array([[1]] * 50, pa.list_(pa.time64("us"))))

# what is asked, and the words of the sentence that must name it
REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "unknown key": (
        {"change": _set("measure", "roundz", value=3)},
        ("small.toml", "measure.roundz", "rounds"),
    ),
    "wrong type": (
        {"change": _set("measure", "rounds", value="many")},
        ("small.toml", "measure.rounds", "many"),
    ),
    "impossible combination": (
        {"arms": ["arrow", {"name": "native", "control": "spark_native"}]},
        ("small.toml", "native", "inprocess"),
    ),
    "unknown strategy": (
        {"arms": [{"name": "a", "strategy": "arow"}]},
        ("'a'", "arow", "internal_row"),
    ),
    "unknown strategy option": (
        {"arms": [{"name": "a", "strategy": "arrow", "options": {"codec": "lz4"}}]},
        ("'a'", "codec", "compression"),
    ),
    "missing column": (
        {"change": _set("data", "key", value="idd")},
        ("data.key", "'idd'", "id, name, amount"),
    ),
    "missing file": (
        {"change": _set("data", "path", value="/nowhere/at/all.parquet")},
        ("data.path", "/nowhere/at/all.parquet"),
    ),
    "a name that Avro does not allow": (
        {"rows": rows(50).append_column("two words", [["x"] * 50])},
        ("rows.parquet", "'two words'"),
    ),
    "columns that differ in case": (
        {"rows": rows(50).append_column("Name", [["x"] * 50])},
        ("rows.parquet", "'name'", "'Name'"),
    ),
    "unsupported type": ({"rows": UNSIGNED}, ("'count'", "uint32")),
    "unsupported type inside a list": ({"rows": NESTED_TIME}, ("'at.element'", "time64")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_2_what_is_refused_before_anything_runs(
    case: str, call: Call, scenario_file: Write
) -> None:
    asked, words = REFUSED[case]
    file = scenario_file(**asked)
    for said in (call("validate", file), call(*_run(file)), call("run", file, "--dry-run")):
        assert said.status == 2, said.messages
        assert [word for word in words if word not in said.sentence] == []
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("table", "data", "words"),
    [
        (_null("id"), {}, ("data.path", "'id'", "record key", "1 of 50")),
        (_null("amount"), {"ordering": "amount"}, ("'amount'", "ordering", "of 50")),
    ],
    ids=["null key", "null ordering"],
)
def test_2_rows_that_cannot_be_written(
    table: pa.Table, data: dict[str, Any], words: tuple[str, ...], call: Call, scenario_file: Write
) -> None:
    said = call(*_run(scenario_file(rows=table, data=data)))
    assert said.status == 2
    assert [word for word in words if word not in said.sentence] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "smokee"], ("smokee", "smoke")),
        (["run"], ("no scenario is named",)),
        (["run", "smoke", "--strategy", "kryo"], ("kryo", "pickle")),
        (["run", "smoke", "--set", "measure.roundz=1"], ("roundz",)),
        (["run", "smoke", "--set", "nonsense"], ("nonsense",)),
        (["run", "smoke", "--rounds", "0"], ("rounds",)),
        (["run", "smoke", "--resume", "latest"], ("--resume",)),
        (["rum"], ("rum",)),
        (["show", "--formt", "json"], ("--formt",)),
        (["validate", "nowhere.toml"], ("nowhere.toml",)),
        # what would have no effect, or contradicts
        (["run", "smoke", "--dry-run", "--replace"], ("--replace", "--keep-tables")),
        (["run", "gate_smoke", "--dry-run", "--master", "local[2]"], ("--master", "'inprocess'")),
        (["run", "gate_smoke", "--dry-run", "--conf", "spark.a=b"], ("--conf", "gate_smoke")),
        (["validate", ".", "--set", "a=1"], (". is a table", "--set")),
        (["list", "--runs", "--scenarios", "."], ("--scenarios",)),
        (["list", "--results", "x"], ("--results", "--runs")),
        (["report", "smoke", "--quoted-in", "README.md"], ("--quoted-in",)),
        (["report", "--quoted-in", "README.md", "--out", "x"], ("--out",)),
        (["report", "--quoted-in", "/dev/zero"], ("/dev/zero", "16 MiB")),
        (["gate", "--minutes", "1"], ("--minutes", "--self-test")),
        (["gate", "--self-test", "--injected", "nan"], ("--injected is nan", "above 0")),
        (["gate", "--self-test", "--injected", "0"], ("--injected is 0", "above 0")),
        (["gate", "--shared-machine", "--host-mismatch", "ignore"], ("exclude each other",)),
        (["ab", "--set", "measure.rounds=3"], ("measure.rounds", "--rounds")),
        (["table", "compact", ".", "--in-process", "--master", "local"], ("exclude each other",)),
        (["table", "resize-buckets", ".", "--split-above", "10"], ("--merge-below is 24",)),
        (["table", "resize-buckets", ".", "--split-above", "inf"], ("--split-above inf",)),
    ],
    ids=" ".join,
)
def test_2_wrong_usage(arguments: list[str], words: tuple[str, ...], call: Call) -> None:
    said = call(*arguments)
    assert said.status == 2
    assert [word for word in words if word not in said.sentence] == []


def test_1_runs_that_are_not_there(call: Call) -> None:
    assert "no run" in call("show").sentence
    assert call("show").status == 1
    assert call("run", "--resume", "nowhere/at/all").status == 1
    assert call("report", "latest").status == 1


@pytest.fixture
def run_folder(call: Call, scenario_file: Write) -> Path:
    assert call(*_run(scenario_file())).status == 0
    (found,) = Path("results/small").iterdir()
    return found


@pytest.mark.slow
def test_a_damaged_run_directory(run_folder: Path, call: Call) -> None:
    samples, header = run_folder / "samples.jsonl", run_folder / "run.json"
    whole, ended = samples.read_text(), header.read_text()
    torn = whole + '{"event": "samp'
    samples.write_text(torn)
    said = call("show")
    assert said.status == 1
    assert "samples.jsonl" in said.sentence  # which is not what was measured, by its digest

    _as_if_killed(header)
    said = call("show")
    assert said.status == 0
    assert "samples.jsonl" in said.messages  # what was left out, not why it failed

    lines = whole.splitlines(keepends=True)
    samples.write_text("".join([*lines[:2], "{]\n", *lines[3:]]))
    said = call("show")
    assert said.status == 1
    assert "samples.jsonl" in said.sentence
    assert "3" in said.sentence
    samples.write_text(whole)

    header.write_text(ended.replace('"format_version": 1', '"format_version": 99'))
    said = call("show", run_folder)
    assert said.status == 1
    assert "run.json" in said.sentence
    assert "99" in said.sentence
    assert call("list", "--runs").status == 0


def _as_if_killed(header: Path) -> None:
    """Make of a run that has ended one whose process was killed before its digests were written."""
    run = json.loads(header.read_text())
    header.write_text(json.dumps(run | {"state": "running", "digests": None}))


def test_1_results_that_cannot_be_written(call: Call, scenario_file: Write) -> None:
    Path("taken").touch()
    said = call(*_run(scenario_file(), "--results", "taken/results"))
    assert said.status == 1
    assert "taken" in said.sentence


def test_a_choice_that_is_not_offered_is_answered_by_those_that_are(call: Call) -> None:
    said = call("list", "--format", "xx")
    assert said.status == 2
    assert "'--format': 'xx' is not one of 'table', 'json', 'csv', 'md'" in said.sentence


def test_what_is_not_foreseen_is_one_sentence_too(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serde_lab.cli import results

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("on\npurpose")

    monkeypatch.setattr("serde_lab.runs.directory.resolve_run", broken)
    assert results.show is not None
    said = call("show")
    assert said.status == 1
    assert "internal error: ZeroDivisionError: on purpose" in said.sentence


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_failure(tmp_path: Path) -> None:
    code = "import sys; from serde_lab.cli.app import entry; entry()"
    for arguments in (["list", "--format", "csv"], ["list"], ["--help"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, text=True, check=False,
        )  # fmt: skip
        os.close(write)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_main_returns_what_the_process_exits_with() -> None:
    command = [sys.executable, "-m", "serde_lab", "show", "nowhere/at/all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == main(["show", "nowhere/at/all"]) == 1
    assert done.stdout == ""
