import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serde_lab.errors import RunError
from serde_lab.runs.directory import list_runs, load_run, resolve_run
from serde_lab.runs.writer import RunWriter
from tests.runs.made_up_runs import header


@pytest.fixture
def results(tmp_path: Path) -> Path:
    for run, scenario in [
        ("20260103T000000Z", "ladder"),
        ("20260101T000000Z", "smoke"),
        ("20260102T000000Z", "smoke"),
    ]:
        RunWriter.create(tmp_path, header(run, scenario)).finish("complete")
    (tmp_path / "baselines" / "some-machine").mkdir(parents=True)
    (tmp_path / "baselines" / "some-machine" / "smoke.json").write_text("{}")
    return tmp_path


def test_runs_are_listed_oldest_first(results: Path) -> None:
    assert [(entry.scenario, entry.run[:8]) for entry in list_runs(results)] == [
        ("smoke", "20260101"),
        ("smoke", "20260102"),
        ("ladder", "20260103"),
    ]


def test_a_damaged_run_is_listed_with_its_problem_and_no_older_one_takes_its_place(
    results: Path,
) -> None:
    """A gate would pass on the older run."""
    damaged = results / "smoke" / "20260109T000000Z"
    damaged.mkdir()
    (damaged / "run.json").write_text("{")
    entry = list_runs(results)[-1]
    assert (entry.header, entry.scenario) == (None, "smoke")
    assert "cannot be read" in (entry.problem or "")
    for name in ("latest", "smoke", "20260109T000000Z"):
        assert resolve_run(name, results) == damaged
        with pytest.raises(RunError, match="cannot be read"):
            load_run(resolve_run(name, results))
    assert resolve_run("ladder", results).name == "20260103T000000Z"


def test_a_folder_that_cannot_be_read_is_an_error_since_the_newest_run_may_be_there(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*names: str) -> None:
        """Refuse to list these folders, and to look into them, as if they were another user's."""

        def listed(self: Path) -> Iterator[Path]:
            if self.name in names:
                raise PermissionError(errno.EACCES, "Permission denied", str(self))
            return iterdir(self)

        def looked_at(self: Path, **more: Any) -> os.stat_result:
            if self.parent.name in names:
                raise PermissionError(errno.EACCES, "Permission denied", str(self))
            return stat(self, **more)

        monkeypatch.setattr(Path, "iterdir", listed)
        monkeypatch.setattr(Path, "stat", looked_at)

    iterdir, stat = Path.iterdir, Path.stat
    for names in (("ladder",), (results.name,)):
        refuse(*names)
        with pytest.raises(RunError, match=f"{names[0]} cannot be read: Permission denied"):
            resolve_run("latest", results)
    (results / "lost+found").mkdir()
    refuse("lost+found")
    assert len(list_runs(results)) == 3
    refuse("20260103T000000Z")
    assert resolve_run("latest", results).name == "20260103T000000Z"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("latest", "ladder/20260103T000000Z"),
        ("smoke", "smoke/20260102T000000Z"),
        ("20260101T000000Z", "smoke/20260101T000000Z"),
        ("20260102", "smoke/20260102T000000Z"),
    ],
)
def test_a_run_is_found_by_name(results: Path, name: str, found: str) -> None:
    assert resolve_run(name, results) == results / found


def test_a_run_is_found_by_its_path(results: Path) -> None:
    path = results / "smoke" / "20260101T000000Z"
    assert resolve_run(str(path), Path("elsewhere")) == path
    assert resolve_run(str(path / "run.json"), Path("elsewhere")) == path


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("2026", "can mean several runs: smoke/20260101T000000Z, smoke/20260102T000000Z"),
        ("smok", "no run, scenario or path is called 'smok'.*runs of ladder, smoke"),
        ("no/such/run", "is no run"),
    ],
)
def test_a_name_that_means_no_run_is_refused_in_words(
    results: Path, name: str, problem: str
) -> None:
    with pytest.raises(RunError, match=problem):
        resolve_run(name, results)


def test_without_any_run_the_message_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"there is no run under .*run smoke"):
        resolve_run("latest", tmp_path)
