"""What `.ci/run` ends with, in a copy of the checkout: the gate over the committed baseline.

Passes unchanged; fails when a strategy is made slower, fatter or wrong. One arm is judged, beside the
one that times are a multiple of, so that the runs stay short. The copy measures by clocks that count:
what is judged is the gate, not the machine on which the test runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from serde_lab.gate.gating import gate_run
from serde_lab.runs.directory import load_run
from tests.gate.copied_package import CHECKOUT, copy_checkout

pytestmark = pytest.mark.slow

STRATEGY = Path("serde_lab/serde/pickle/records.py")
HAND_OVER = Path("serde_lab/lab/cells/hand_over.py")
SCENARIO = "gate_smoke"
ARMS = ("pickle", "arrow", "work_floor")
"""That a run measures: times are a multiple of arrow's, and each of the others is judged."""

# each call takes ten ticks of CPU time more, by a clock that counts
_SLOW = """
def _slower(verb):
    from serde_lab import counted_clock

    def slow(self, *given):
        found = verb(self, *given)
        counted_clock.pass_ns(10 * counted_clock.TICK_NS)
        return found

    return slow


for _verb in ("from_arrow", "encode", "decode"):
    setattr(BoundPickle, _verb, _slower(getattr(BoundPickle, _verb)))
PickleRecords.to_arrow = _slower(PickleRecords.to_arrow)
"""

# ten ticks more for each batch that is sorted by target
_SLOW_FLOOR = """
_keep_stage = keep_stage


def keep_stage(task, batches):
    from serde_lab import counted_clock

    with task.timeline.phase("group"):
        counted_clock.pass_ns(20 * counted_clock.TICK_NS)
    yield from _keep_stage(task, batches)
"""

# one byte in the whole cell: on the frame of one record, the same in every round
_FAT = """
_encode, _decode, _EXTRA = BoundPickle.encode, BoundPickle.decode, b"\\x00"


def _fatter(self, records, bounds):
    found = _encode(self, records, bounds)
    frames = found.frame.to_pylist()
    _CHOSEN.append(frames[0])
    frames = [f + _EXTRA if f == _CHOSEN[0] else f for f in frames]
    return Frames(found.target, pa.array(frames, pa.binary()), found.rows)


def _thinner(self, frames):
    ended = [f[:-1] if f.endswith(b"." + _EXTRA) else f for f in frames.to_pylist()]
    return _decode(self, pa.array(ended, pa.binary()))


_CHOSEN = []
BoundPickle.encode, BoundPickle.decode = _fatter, _thinner
"""

_WRONG = """
_from_arrow = BoundPickle.from_arrow


def _wrong(self, batch):
    at = batch.schema.get_field_index("l_comment")
    return _from_arrow(self, batch.set_column(at, batch.schema.field(at), batch.column(at)[::-1]))


BoundPickle.from_arrow = _wrong
"""


@dataclass(frozen=True)
class Copy:
    """A copy of the checkout, whose runs are the same each time; `own` has a baseline that it made."""

    folder: Path
    own: Path
    first: Path
    """The run behind it, of the code as it is."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    folder = tmp_path_factory.mktemp("checkout")
    copy_checkout(folder, ("serde_lab", "tpch", "scenarios", "results/baselines"))
    done = measured(folder, "", *ARMS)
    assert done.returncode == 0, done.stderr
    (first,) = (folder / "results" / SCENARIO).iterdir()
    kept = ci(folder, "baseline", "save", SCENARIO, "--baselines", "own", "--by", "a test")
    assert kept.returncode == 0, kept.stderr
    return Copy(folder, folder / "own", first)


def ci(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of `.ci/run`, by the copy's own code."""
    return subprocess.run(
        [sys.executable, "-m", "serde_lab", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def measured(
    folder: Path, change: str, *arms: str, module: Path = STRATEGY
) -> subprocess.CompletedProcess[str]:
    """A run of the copy's code with this change of a module, of the arms that the gate needs."""
    for name in (STRATEGY, HAND_OVER):
        own = change if name == module else ""
        (folder / name).write_text((CHECKOUT / name).read_text() + own)
    chosen = [word for arm in arms or ARMS[:2] for word in ("--strategy", arm)]
    return ci(folder, "run", SCENARIO, "--rounds", "4", *chosen)


def gated(folder: Path, *arguments: str, arm: str = "pickle") -> subprocess.CompletedProcess[str]:
    return ci(folder, "gate", SCENARIO, "--shared-machine", "--arm", arm, *arguments)


def test_ci_ends_with_this_gate() -> None:
    lines = (CHECKOUT / ".ci" / "run").read_text().strip().splitlines()
    asked = [f"make run SCENARIO={SCENARIO}", f"make gate SCENARIO={SCENARIO}"]
    assert lines[-2:] == [f"plainly {command}" for command in asked]
    make = (CHECKOUT / "Makefile").read_text()
    assert "-m serde_lab gate $(SCENARIO) --shared-machine\n" in make
    assert list(CHECKOUT.glob(f"results/baselines/*/{SCENARIO}.json"))


def test_the_code_as_it_is_has_the_bytes_of_the_committed_baseline(copy: Copy) -> None:
    judged = gate_run(
        load_run(copy.first),
        ["pickle"],
        folder=CHECKOUT / "results" / "baselines",
        host_mismatch="shared",
    )
    found = {f.row.quantity.metric: f.level for f in judged.findings if f.row and not f.row.scale}
    assert found.pop("seconds") == "undecided"  # no machine of CI is that of the baseline
    assert set(found.values()) == {"passed"}
    assert found.keys() >= {"contents", "rows", "frames", "frame_bytes", "files", "table_bytes"}


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [("", 0, "passed"), (_SLOW, 3, "regression: pickle serde_cpu_s")],
    ids=["unchanged", "slower"],
)
def test_a_run_over_one_of_the_same_machine(
    copy: Copy, change: str, status: int, said: str
) -> None:
    run = measured(copy.folder, change)
    assert run.returncode == 0, run.stderr
    gate = gated(copy.folder, "--baselines", "own")
    assert gate.returncode == status, gate.stdout + gate.stderr
    assert said in gate.stdout


def test_a_slower_floor_fails(copy: Copy) -> None:
    run = measured(copy.folder, _SLOW_FLOOR, *ARMS[1:], module=HAND_OVER)
    assert run.returncode == 0, run.stderr
    elsewhere = gated(copy.folder, "--baselines", "own", arm="work_floor")
    here = ci(copy.folder, "gate", SCENARIO, "--arm", "work_floor", "--baselines", "own")
    for gate, found in ((elsewhere, "phase_cpu_s map.group"), (here, "seconds")):
        assert gate.returncode == 3, gate.stdout + gate.stderr
        assert f"regression: work_floor {found}" in gate.stdout


@pytest.mark.parametrize(
    ("change", "statuses", "said"),
    [
        (_FAT, (0, 3), "any change counts"),
        (_WRONG, (4, 4), "wrong answer: pickle contents"),
    ],
    ids=["one byte fatter", "wrong"],
)
def test_a_run_over_the_committed_baseline(
    copy: Copy, change: str, statuses: tuple[int, int], said: str
) -> None:
    run = measured(copy.folder, change)
    assert run.returncode == statuses[0], run.stderr
    gate = gated(copy.folder)
    assert gate.returncode == statuses[1], gate.stdout + gate.stderr
    assert said in gate.stdout
    if change == _FAT:
        assert _grew_by(gate.stdout) == 1


def _grew_by(text: str) -> int:
    line = next(line for line in text.splitlines() if "pickle frame_bytes" in line)
    before, after = line.split(": ")[2].split(" to ")
    return _bytes(after) - _bytes(before)


def _bytes(text: str) -> int:
    return int(text.split(" B")[0].split()[-1].replace(",", ""))
