"""Two commands at once: what both write is kept, and what only one may do is refused to the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from serde_lab.cli import references
from serde_lab.errors import RunError
from serde_lab.files import alone_in
from serde_lab.gate.baseline import store
from serde_lab.gate.history import acknowledge, acknowledged
from serde_lab.runs.directory import load_run
from tests.cli.conftest import Call
from tests.gate.made_up_sides import STEADY, write_run

_MANY = 6


def at_once(change: Callable[[int], object]) -> None:
    """Call `change` with each number at the same moment; the kernel's locks hold between threads, too."""
    barrier = Barrier(_MANY)

    def changed(number: int) -> None:
        barrier.wait()
        change(number)

    with ThreadPoolExecutor(_MANY) as pool:
        list(pool.map(changed, range(_MANY)))


def test_baselines_and_their_log(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, "r1", {"avro": STEADY}))
    folder = tmp_path / "baselines"
    names = {f"b{number}" for number in range(_MANY)}
    at_once(lambda number: store.save(run, folder, by="ada", name=f"b{number}"))
    listed = store.list_baselines(folder)
    assert {one.name for one in listed} == names
    at_once(
        lambda number: store.remove(
            folder, listed[0].machine_class, "smoke", name=f"b{number}", by="ada", reason="old"
        )
    )
    document = store.read_document(next(folder.glob("*/*.json")))
    assert document["baselines"] == {}
    said = sorted((event["event"], event["baseline"]) for event in document["events"])
    assert said == sorted((event, name) for event in ("save", "remove") for name in names)


def test_acknowledgements(tmp_path: Path) -> None:
    at_once(lambda number: acknowledge(tmp_path, "smoke", run=f"r{number}", by="ada", why="x"))
    runs = {one.run for one in acknowledged(tmp_path, "smoke")}
    assert runs == {f"r{number}" for number in range(_MANY)}


def test_one_self_test_records_at_a_time(call: Call) -> None:
    with alone_in(Path("results/self-test"), make=True):
        said = call("gate", "--self-test", "--minutes", "0")
    assert said.status == 1
    assert said.sentence == "serde-lab: another process is writing to results/self-test"


def test_references_are_measured_by_one_process_at_a_time(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = references.Reference(Path("results/reference/smoke/r1"), "older measuring code", 1)
    remade: list[Path] = []
    monkeypatch.setattr(references, "quoted", lambda *_: [stale])
    monkeypatch.setattr(references, "_remade", lambda one, _: remade.append(one.run) or 0)
    reference = tmp_path / "results" / "reference"
    with alone_in(reference, make=True):
        said = call("references")
        assert (said.status, remade) == (1, [])
        assert said.sentence == "serde-lab: another process is writing to results/reference"
        assert call("references", "--dry-run").status == 0
    assert call("references").status == 0
    assert remade == [stale.run]


def test_a_folder_that_is_not_there_is_made_only_when_asked(tmp_path: Path) -> None:
    with alone_in(tmp_path / "gone"):
        assert not (tmp_path / "gone").exists()
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunError, match="file/below cannot be made: Not a directory"),
        alone_in(tmp_path / "file" / "below", make=True),
    ):
        pass
