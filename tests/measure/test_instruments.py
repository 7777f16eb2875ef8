"""Hashes of instruments: over contents, not names, and each metric knows the instruments that measure it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import serde_lab
from serde_lab.measure import code_version as module
from serde_lab.measure.code_version import (
    CLOCK,
    INSTRUMENTS,
    PROCESSES,
    TASKS,
    differing_instruments,
    instruments,
    measured_by,
)
from serde_lab.measure.metrics import METRICS

PACKAGE = Path(serde_lab.__file__).parent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the files that hold instruments."""
    for part in {part.partition("#")[0] for parts in INSTRUMENTS.values() for part in parts}:
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / part, tmp_path / part)
    return tmp_path


def test_a_file_that_is_renamed_keeps_the_hash(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = instruments("spark", copy)
    (copy / "measure" / "timeline.py").rename(copy / "measure" / "stopwatch.py")
    moved = ("measure/stopwatch.py", *INSTRUMENTS[TASKS][1:])
    monkeypatch.setattr(module, "INSTRUMENTS", {**INSTRUMENTS, TASKS: moved})
    assert instruments("spark", copy) == before


@pytest.mark.slow
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_change_changes_its_instrument_alone_and_words_change_nothing(
    copy: Path, name: str
) -> None:
    exchange = "none" if name == module.CODEC else "spark"
    before = instruments(exchange, copy)
    part, _, definition = INSTRUMENTS[name][0].partition("#")
    file = copy / part
    text = file.read_text()
    file.write_text(f"# words before it\n\n{text}")
    assert instruments(exchange, copy) == before
    old, new = "import annotations\n", "import annotations\n\nADDED = 1\n"
    if definition:
        old = f"def {definition.rpartition('.')[2]}("
        new = old.replace("(", "_(")
    assert old in text
    file.write_text(text.replace(old, new, 1))
    if definition:
        with pytest.raises(LookupError, match="does not exist"):
            instruments(exchange, copy)
        return
    changed = {one for one, found in instruments(exchange, copy).items() if found != before[one]}
    assert name in changed
    shared = {one for one, parts in INSTRUMENTS.items() if part in parts}
    assert changed <= shared


def test_a_definition_is_hashed_without_the_rest_of_its_file(copy: Path) -> None:
    before = instruments("spark", copy)
    bench = copy / "lab" / "cells" / "bench.py"
    text = bench.read_text()
    bench.write_text(text.replace("def collect_garbage(", "def collect_all_garbage("))
    assert instruments("spark", copy) == before
    bench.write_text(text.replace("wall_ns = time.perf_counter_ns() - begin_ns", "wall_ns = 1"))
    after = instruments("spark", copy)
    assert {one for one in after if after[one] != before[one]} == {CLOCK}


def test_runs_use_the_instruments_of_their_exchange() -> None:
    assert set(instruments("none")) == {"loop of verbs", "calibration", "other work"}
    assert set(instruments("spark")) - set(instruments("inprocess")) == {"event log"}
    with pytest.raises(KeyError):
        instruments("carrier pigeon")


@pytest.mark.parametrize("metric", [one.name for one in METRICS])
def test_every_metric_is_measured_by_known_instruments(metric: str) -> None:
    assert set(measured_by(metric)) <= set(INSTRUMENTS)


def test_only_the_metrics_of_a_changed_instrument_differ() -> None:
    before = instruments("spark")
    after = {**before, PROCESSES: "another"}
    assert differing_instruments(before, after, "tree_cpu_s") == (PROCESSES,)
    for metric in ("seconds", "serde_cpu_s", "shuffle_bytes", "table_bytes", "spark.gc_s"):
        assert differing_instruments(before, after, metric) == ()
    lacking = {name: found for name, found in before.items() if name != CLOCK}
    assert differing_instruments(before, lacking, "seconds") == (CLOCK,)
