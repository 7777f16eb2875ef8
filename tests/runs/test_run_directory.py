import errno
import json
import math
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serde_lab.errors import RunError, StorageError
from serde_lab.measure.metrics import Sample
from serde_lab.runs import directory
from serde_lab.runs.directory import load_header, load_run, seal_run
from serde_lab.runs.model import Calibration, Check
from serde_lab.runs.writer import RunWriter, new_run_id
from tests.runs.made_up_runs import begin, header, small_run, whole_cell


def test_what_is_written_is_read(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, header(seed=7, machine_class="m")) as writer:
        writer.calibration(1, "numpy", np.float64(0.5))
        begin(writer, "r01-arrow", warmup=True, order=3)
        writer.sample("r01-arrow", "frames", np.int64(12), commit=1)
        writer.sample("r01-arrow", "phase_wall_s", 0.25, commit=1, phase="map.encode")
        writer.check(Check("oracle", True, "9 rows", arm="arrow", cell="r01-arrow", round=1))
        writer.cell_end("r01-arrow", "failed", "ValueError: no")
        writer.finish("complete")
    run = load_run(writer.path)
    assert writer.path == tmp_path / "smoke" / "20260101T000000Z"
    assert (run.header.seed, run.header.machine_class, run.header.state) == (7, "m", "complete")
    (cell,) = run.cells
    assert (cell.arm, cell.round, cell.warmup, cell.order) == ("arrow", 1, True, 3)
    assert (cell.status, cell.error) == ("failed", "ValueError: no")
    assert cell.samples == (
        Sample("frames", 12, 1),
        Sample("phase_wall_s", 0.25, 1, "map.encode"),
    )
    assert run.calibrations == (Calibration(1, "numpy", 0.5, "s"),)
    assert run.checks == (Check("oracle", True, "9 rows", arm="arrow", cell="r01-arrow", round=1),)
    assert run.messages == ()
    assert run.failed_cells == {"r01-arrow"}


def test_every_line_is_in_the_file_as_soon_as_it_is_measured(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, header()) as writer:
        begin(writer, "r01-arrow")
        writer.sample("r01-arrow", "rows", 5)
        lines = (writer.path / "samples.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["cell_begin", "sample"]
    assert json.loads(lines[1]) == {
        "event": "sample",
        "cell": "r01-arrow",
        "metric": "rows",
        "value": 5,
        "unit": "1",
        "commit": None,
    }


def test_a_cell_without_its_end_does_not_count_and_its_checks_neither(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, header()) as writer:
        whole_cell(writer, "r01-arrow", [1.0])
        begin(writer, "r01-pickle")
        writer.sample("r01-pickle", "seconds", 9.0, commit=1)
        writer.check(Check("oracle", False, "differs", arm="pickle", cell="r01-pickle", round=1))
        writer.check(Check("arms agree", True, ""))
    run = load_run(writer.path)
    assert run.complete_cells == {"r01-arrow"}
    assert [check.name for check in run.checks] == ["oracle", "arms agree"]
    partial, without_end = run.messages
    assert "has not ended" in partial
    assert "r01-pickle did not finish" in without_end


def test_arms_that_differed_in_one_round_and_agreed_in_the_next_are_told_of_both(
    tmp_path: Path,
) -> None:
    with RunWriter.create(tmp_path, header()) as writer:
        for number, passed in enumerate([False, True, True], start=1):
            writer.check(Check("arms agree", passed, "", arm="arrow", round=number))
        # the round was measured once more
        writer.check(Check("arms agree", False, "", arm="arrow", round=3))
    found = [(check.round, check.passed) for check in load_run(writer.path).checks]
    assert found == [(1, False), (2, True), (3, False)]


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_torn_last_line_is_dropped_with_a_message(tmp_path: Path, cut: int) -> None:
    path = small_run(tmp_path, killed=True)
    file = path / "samples.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole[:-cut])
    run = load_run(path)
    if cut == 1:  # only the line feed is gone: the line is whole
        assert run == load_run(path)
        assert len(run.cells) == 4
        assert len(run.messages) == 1
    else:
        assert len(run.cells) == 3
        assert "line (28) is incomplete" in run.messages[1]


@pytest.mark.slow
def test_every_cut_of_a_run_can_be_read_and_resumed(tmp_path: Path) -> None:
    path = small_run(tmp_path, killed=True)
    file = path / "samples.jsonl"
    whole = file.read_bytes()
    ends = [
        whole.index(b"\n", at)
        for at in range(len(whole))
        if whole.startswith(b'{"event": "cell_end"', at)
    ]
    for cut in range(0, len(whole), 7):
        file.write_bytes(whole[:cut])
        complete = sum(end <= cut for end in ends)
        with RunWriter.open_existing(path) as writer:
            assert len(writer.complete_cells) == complete
            whole_cell(writer, "r09-arrow", [1.0])
        assert len(load_run(path).cells) == complete + 1


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (b'{"event": "sam', "line 3 is damaged"),
        (b"", "line 3 is damaged"),
        (b"[1]", "line 3 is damaged"),
        (b"\xff\xfe", "line 3 is damaged"),
        (b'{"event": "nap"}', "line 3: unknown event 'nap'"),
        (b'{"event": "sample", "cell": "r01-pickle"}', "line 3: key 'metric' is missing"),
        (
            b'{"event":"sample","cell":"r77-x","metric":"rows","value":1,"unit":"1","commit":1}',
            "line 3: cell 'r77-x' has not begun",
        ),
        (
            b'{"event":"sample","cell":"r01-pickle","metric":"m","value":"1","unit":"1"}',
            "line 3: value is '1', not a number",
        ),
        (
            b'{"event":"sample","cell":"r01-pickle","metric":"m","value":NaN,"unit":"1"}',
            "line 3 is damaged",
        ),
    ],
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damage: bytes, problem: str) -> None:
    path = small_run(tmp_path, killed=True)
    file = path / "samples.jsonl"
    lines = file.read_bytes().split(b"\n")
    lines[2] = damage
    file.write_bytes(b"\n".join(lines))
    with pytest.raises(RunError) as caught:
        load_run(path)
    assert str(file) in caught.value.message
    assert problem in caught.value.message


def test_a_damaged_check_is_named(tmp_path: Path) -> None:
    path = small_run(tmp_path, killed=True)
    (path / "checks.jsonl").write_text('{"name": "oracle", "passed": 1}\n')
    with pytest.raises(RunError, match=r"checks\.jsonl, line 1: passed is 1"):
        load_run(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"format_version": 2}', "has format_version 2, and this serde_lab reads 1"),
        ("{", "cannot be read"),
        ("[]", "has format_version None"),
        ('{"format_version": 1, "run": "x", "scenario": "s"}', "key 'arms'"),
    ],
)
def test_a_run_file_that_cannot_be_is_refused(tmp_path: Path, content: str, problem: str) -> None:
    path = small_run(tmp_path)
    (path / "run.json").write_text(content)
    with pytest.raises(RunError) as caught:
        load_run(path)
    assert problem in caught.value.message


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"is no run: it has no run\.json"):
        load_run(tmp_path)


def test_a_run_whose_id_is_taken_gets_another_one(tmp_path: Path) -> None:
    first = small_run(tmp_path)
    whole = (first / "run.json").read_bytes()
    with RunWriter.create(tmp_path, header()) as writer:
        assert writer.path.parent == first.parent
        assert writer.path != first
        assert load_run(writer.path).header.run == writer.path.name
    assert (first / "run.json").read_bytes() == whole


def test_a_run_is_running_while_its_process_writes_it(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path, header())
    assert load_run(writer.path).header.state == "running"
    writer.close()  # as the kernel does when the process ends
    assert load_run(writer.path).header.state == "interrupted"
    with RunWriter.open_existing(writer.path) as resumed:
        assert load_run(writer.path).header.state == "running"
        resumed.finish("complete")
    assert load_run(writer.path).header.state == "complete"


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with RunWriter.create(tmp_path, header()) as writer, monkeypatch.context() as patch:
        patch.setattr(writer._samples, "_file", _FullDisk(full))
        with pytest.raises(StorageError, match=r"samples\.jsonl cannot be written: No space left"):
            begin(writer, "r01-arrow")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _raising(full))
        with pytest.raises(RunError, match=r"run\.json cannot be written.*No space left"):
            RunWriter.create(tmp_path, header("20260102T000000Z"))
    assert not (tmp_path / "smoke" / "20260102T000000Z").exists()


class _FullDisk:
    def __init__(self, error: OSError) -> None:
        self.error = error

    def write(self, data: memoryview) -> int:
        raise self.error


def _raising(error: OSError) -> Callable[..., None]:
    def raises(*_: object) -> None:
        raise error

    return raises


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden"])
def test_a_scenario_name_that_leaves_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="cannot be the name of a folder"):
        RunWriter.create(tmp_path, header(scenario=name))


def test_a_resumed_run_keeps_what_was_measured_and_redoes_the_cell_that_was_cut(
    tmp_path: Path,
) -> None:
    writer = RunWriter.create(tmp_path, header(extra_key={"kept": 1}))

    def measure() -> None:
        with writer:
            whole_cell(writer, "r01-arrow", [1.0])
            begin(writer, "r01-pickle")
            writer.sample("r01-pickle", "seconds", 99.0, commit=1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure()
    assert load_run(writer.path).header.state == "interrupted"
    # gone on with, and killed
    RunWriter.open_existing(writer.path).close()
    with (writer.path / "samples.jsonl").open("ab") as file:
        file.write(b'{"event": "sample", "ce')

    with RunWriter.open_existing(writer.path) as resumed:
        assert resumed.complete_cells == {"r01-arrow"}
        assert load_run(writer.path).header.state == "running"
        whole_cell(resumed, "r01-pickle", [2.0])
        resumed.finish("complete")
    run = load_run(writer.path)
    pickle = next(cell for cell in run.cells if cell.arm == "pickle")
    assert [s.value for s in pickle.samples if s.metric == "seconds"] == [2.0]
    assert run.header.state == "complete"
    assert run.header.model_extra == {"extra_key": {"kept": 1}}
    assert run.messages == ()


def test_a_run_that_has_ended_states_the_digests_of_its_files(tmp_path: Path) -> None:
    path = small_run(tmp_path)
    digests = load_run(path).header.digests
    assert set(digests or ()) == {"samples.jsonl", "checks.jsonl", "run.json"}
    with RunWriter.open_existing(path) as writer:
        assert load_header(path).digests is None
        whole_cell(writer, "r03-arrow", [1.0])
        writer.finish("complete")
    run = load_run(path)
    assert len(run.cells) == 5
    assert run.messages == ()
    assert run.header.digests != digests


@pytest.mark.parametrize("name", ["samples.jsonl", "checks.jsonl"])
@pytest.mark.parametrize("edit", ["change", "cut", "empty", "delete"])
def test_a_file_that_was_edited_is_named(tmp_path: Path, name: str, edit: str) -> None:
    path = small_run(tmp_path)
    file = path / name
    whole = file.read_bytes()
    changed = {"change": whole.replace(b"pickle", b"pockle"), "cut": whole[:-40], "empty": b""}
    if edit == "delete":
        file.unlink()
    else:
        file.write_bytes(changed[edit])
    with pytest.raises(RunError) as caught:
        load_run(path)
    assert f"{file} was changed after the measurement" in caught.value.message
    with pytest.raises(RunError):
        RunWriter.open_existing(path)


def test_a_run_of_an_older_version_is_given_its_digests_once(tmp_path: Path) -> None:
    path = small_run(tmp_path)
    whole = (path / "run.json").read_text()
    for lacking in ([], ["run.json"], ["run.json", "samples.jsonl", "checks.jsonl"]):
        header = json.loads(whole)
        for name in lacking:
            del header["digests"][name]
        (path / "run.json").write_text(json.dumps(header | {"digests": header["digests"] or None}))
        assert ["has no digest" in one for one in load_run(path).messages] == [True] * (
            len(lacking) == 3
        )
        assert seal_run(path) == bool(lacking)
    assert (path / "run.json").read_text() == whole


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 8},
        {"state": "interrupted"},
        {"settings": {"rows": {"1": 101}}},
        {"scenario": "other"},
        {"extra": None},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_run_file_that_was_edited_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    path = small_run(tmp_path)
    file = path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(RunError, match=r"run\.json was changed after the measurement"):
        load_run(path)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"environment": {"cpu": {"cores": "two"}}}, "environment"),
        ({"seed": math.nan}, "NaN is not JSON"),
        ({"seed": 10**30}, "more than 64 bits"),
    ],
    ids=str,
)
def test_a_value_in_a_run_file_without_digest_is_named(
    tmp_path: Path, change: dict[str, object], key: str
) -> None:
    path = small_run(tmp_path)
    file = path / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"digests": None} | change))
    with pytest.raises(RunError) as caught:
        load_header(path)
    assert f"{file}" in caught.value.message
    assert key in caught.value.message


def test_a_run_that_was_killed_is_given_no_digests(tmp_path: Path) -> None:
    path = small_run(tmp_path, killed=True)
    with pytest.raises(RunError, match="has not ended"):
        seal_run(path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"value": 1.0', '"value": -5', "line 9: seconds is -5, and a measured value"),
        ('"value": 1.0', '"value": 1e999', "seconds is inf"),
        (
            '"phase_cpu_s", "phase": "map.encode", "value": 2.0',
            None,
            "100.000 s of CPU time in 2.000 s",
        ),
        ('"arm": "pickle", "round": 2', '"arm": "pickle", "round": 7', "round 7 of arm 'pickle'"),
        ('"arm": "pickle", "round": 2', '"arm": "moon", "round": 2', "no arm 'moon'"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(
    tmp_path: Path, old: str, new: str | None, problem: str
) -> None:
    path = small_run(tmp_path, killed=True)
    file = path / "samples.jsonl"
    whole = file.read_text()
    assert old in whole
    file.write_text(whole.replace(old, new or old.replace("2.0", "100.0"), 1))
    with pytest.raises(RunError) as caught:
        load_run(path)
    assert str(file) in caught.value.message
    assert problem in caught.value.message


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("samples.jsonl", '"metric": "seconds"', '"metric": 7', "metric is 7, which is not a text"),
        ("samples.jsonl", '"phase": "map.encode"', '"phase": []', "phase is []"),
        ("samples.jsonl", '"value": 2.0', '"value": 1e308', "more than any measurement gives"),
        ("samples.jsonl", '"cell": "r01-pickle"', '"cell": {}', "cell is {}"),
        (
            "samples.jsonl",
            '"round": 1',
            '"round": 1.5',
            "round is 1.5, which is not a whole number",
        ),
        ("samples.jsonl", '"warmup": false', '"warmup": "no"', "warmup is 'no'"),
        ("samples.jsonl", '"error": null', '"error": 1', "error is 1"),
        ("checks.jsonl", '"name": "oracle"', '"name": null', "name is None"),
        ("checks.jsonl", '"round": 1', '"round": true', "round is True"),
        ("checks.jsonl", '"detail": "all rows agree"', '"detail": 5', "detail is 5"),
        ("checks.jsonl", '"cell": "r01-pickle"', '"cell": {"x": null}', "cell is {'x': None}"),
    ],
)
def test_a_value_of_another_kind_is_named(
    tmp_path: Path, name: str, old: str, new: str, problem: str
) -> None:
    path = small_run(tmp_path, killed=True)
    lines = (path / name).read_text()
    assert old in lines
    (path / name).write_text(lines.replace(old, new, 1))
    with pytest.raises(RunError, match=re.escape(name)) as caught:
        load_run(path)
    assert problem in caught.value.message


def test_a_check_of_another_round_than_its_cell_is_refused(tmp_path: Path) -> None:
    path = small_run(tmp_path, killed=True)
    file = path / "checks.jsonl"
    file.write_text(file.read_text().replace('"round": 2', '"round": 3', 1))
    with pytest.raises(RunError, match=r"round 3; the cell is of arm pickle, round 2"):
        load_run(path)


def test_only_one_process_writes_a_run(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path, header()) as writer:
        begin(writer, "r01-arrow")
        with pytest.raises(RunError, match="is being written by another process"):
            RunWriter.open_existing(writer.path)
        whole_cell(writer, "r01-arrow", [1.0])
    assert load_run(writer.path).complete_cells == {"r01-arrow"}


def test_a_run_that_ends_while_it_is_read_is_not_called_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter.create(tmp_path, header())
    is_locked = directory._is_locked

    def ended_before(samples: Path) -> bool:
        writer.finish("complete")
        return is_locked(samples)

    monkeypatch.setattr(directory, "_is_locked", ended_before)
    assert load_run(writer.path).header.state == "complete"


def test_a_run_that_is_resumed_while_it_is_read_is_not_called_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = RunWriter.create(tmp_path, header())
    whole_cell(writer, "r01-arrow", [1.0])
    writer.finish("interrupted")
    check = directory.check_digests
    resumed: list[RunWriter] = []

    def resumed_before(*arguments: Any) -> None:
        monkeypatch.setattr(directory, "check_digests", check)
        resumed.append(RunWriter.open_existing(writer.path))
        whole_cell(resumed[0], "r02-arrow", [1.0])
        check(*arguments)

    monkeypatch.setattr(directory, "check_digests", resumed_before)
    found = load_run(writer.path)
    assert found.header.state == "running"
    assert "r02-arrow" in found.complete_cells
    resumed[0].finish("complete")


def test_values_that_no_reader_would_take_are_refused_before_they_are_stored(
    tmp_path: Path,
) -> None:
    with RunWriter.create(tmp_path, header()) as writer:
        begin(writer, "r01-arrow")
        with pytest.raises(RunError, match="cannot store"):
            writer.sample("r01-arrow", "seconds", float("nan"), commit=1)
        with pytest.raises(RunError, match="'secs' is no metric"):
            writer.sample("r01-arrow", "secs", 1.0, commit=1)
        writer.cell_end("r01-arrow", "ok")
    assert load_run(writer.path).cells[0].samples == ()


def test_a_cell_that_ended_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    with RunWriter.create(tmp_path, header()) as writer:
        begin(writer, "r01-arrow")
        monkeypatch.setattr(os, "fsync", fsync)
        writer.sample("r01-arrow", "rows", 1)
        assert synced == []
        writer.cell_end("r01-arrow", "ok")
        assert sorted(synced) == ["checks.jsonl", "samples.jsonl"]


def test_ids_sort_by_time_and_are_unique(tmp_path: Path) -> None:
    now = datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
    ids = []
    for _ in range(3):
        ids.append(new_run_id(tmp_path, now))
        (tmp_path / ids[-1]).mkdir()
    assert ids == ["20260301T123005Z", "20260301T123005Z-02", "20260301T123005Z-03"]


def test_a_check_that_was_not_made_and_the_facts_of_a_check_are_kept(tmp_path: Path) -> None:
    made = Check("files", True, "", "arrow", None, None, {"codec": "zstd", "base_files": 8})
    not_made = Check("isolated", None, "no namespaces", "arrow")
    with RunWriter.create(tmp_path, header()) as writer:
        for check in (made, not_made):
            writer.check(check)
        writer.finish("complete")
    run = load_run(writer.path)
    assert run.checks == (made, not_made)
    assert not any(check.failed for check in run.checks)
