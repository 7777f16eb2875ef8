"""What `.ci/run` ends with, in a copy of the checkout: the gate over the committed baseline.

Passes unchanged; fails when a strategy is made slower, fatter or wrong. One arm is judged, beside the
one that times are a multiple of, so that the four runs stay short.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
STRATEGY = Path("serde_lab/serde/pickle_records.py")
SCENARIO = "gate_smoke"

_SLOW = """
def _twice_as_slow(verb):
    import time

    def slow(self, *given):
        begun = time.process_time()
        found = verb(self, *given)
        end = time.process_time() + 1.5 * (time.process_time() - begun)
        while time.process_time() < end:
            pass
        return found

    return slow


for _verb in ("from_arrow", "encode", "decode"):
    setattr(BoundPickle, _verb, _twice_as_slow(getattr(BoundPickle, _verb)))
PickleRecords.to_arrow = _twice_as_slow(PickleRecords.to_arrow)
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


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("serde_lab", "tpch", "scenarios", "results/baselines"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, folder / name, ignore=ignored)
    return folder


def ci(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of `.ci/run`, by the copy's own code."""
    return subprocess.run(
        [sys.executable, "-m", "serde_lab", *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_ci_ends_with_this_gate() -> None:
    lines = (CHECKOUT / ".ci" / "run").read_text().strip().splitlines()
    assert lines[-2:] == [f"make run SCENARIO={SCENARIO}", f"make gate SCENARIO={SCENARIO}"]
    make = (CHECKOUT / "Makefile").read_text()
    assert "-m serde_lab gate $(SCENARIO) --shared-machine\n" in make
    assert list(CHECKOUT.glob(f"results/baselines/*/{SCENARIO}.json"))


@pytest.mark.parametrize(
    ("change", "statuses", "said"),
    [
        ("", (0, 0), "passed"),
        (_SLOW, (0, 3), "regression: pickle serde_cpu_s"),
        (_FAT, (0, 3), "any change counts"),
        (_WRONG, (4, 4), "wrong answer: pickle contents"),
    ],
    ids=["unchanged", "twice as slow", "one byte fatter", "wrong"],
)
def test_the_gate_over_the_committed_baseline(
    copy: Path, change: str, statuses: tuple[int, int], said: str
) -> None:
    original = (CHECKOUT / STRATEGY).read_text()
    (copy / STRATEGY).write_text(original + change)
    arms = ("--strategy", "pickle", "--strategy", "arrow")
    run = ci(copy, "run", SCENARIO, *arms)
    assert run.returncode == statuses[0], run.stderr
    gate = ci(copy, "gate", SCENARIO, "--shared-machine", "--arm", "pickle")
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
