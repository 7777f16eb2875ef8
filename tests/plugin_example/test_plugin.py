"""A strategy of another distribution is found by its name: one file, its laws and its golden bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from serde_lab.errors import OptionError
from serde_lab.lab.cells.codec_cases import batch_of, values_of
from serde_lab.lab.cells.codec_cells import measure_verbs
from serde_lab.lab.cells.verb_times import VERBS
from serde_lab.serde import registry
from serde_lab.serde.interface import SerdeOptions
from serde_lab.serde.prediction import predict

HERE = Path(__file__).parent
KNOWN = ("pickle", "pickle_columns", "avro", "internal_row", "arrow")


def test_it_is_found_by_name(installed: str) -> None:
    assert registry.names() == (*KNOWN, "json_lines")
    found = registry.strategy("json_lines")
    assert type(found).__module__ == "json_lines"
    assert Path(sys.modules["json_lines"].__file__ or "").parent == Path(installed)


def test_it_is_gone_when_it_is_not_installed(
    installed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != installed])
    assert registry.names() == KNOWN
    with pytest.raises(OptionError, match="unknown strategy 'json_lines', expected one of pickle"):
        registry.strategy("json_lines")


def test_another_process_finds_it_on_its_path(installed: str) -> None:
    """As a worker of Spark does."""
    code = "from serde_lab.serde import registry; print(registry.strategy('json_lines').name)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([installed, *sys.path])}
    found = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert found.stdout == "json_lines\n"


def test_it_takes_one_file_its_laws_and_its_golden_bytes() -> None:
    own = {"json_lines.py", "pyproject.toml", "test_json_lines.py", "golden"}
    shown = {"__init__.py", "conftest.py", "installation.py", "test_plugin.py"}
    assert {p.name for p in HERE.iterdir() if p.name != "__pycache__"} == own | shown
    laws = (HERE / "test_json_lines.py").read_text().partition("class ")[2].splitlines()
    assert len(laws) <= 10
    assert list((HERE / "golden" / "json_lines").glob("*.json"))


def test_it_is_measured_like_the_others() -> None:
    """Its verbs are timed, and what its author expected stands beside that."""
    schema, batch = batch_of([values_of("int64", 20, 1)], 20)
    times, frame_bytes = measure_verbs(registry.bind("json_lines", schema, SerdeOptions()), batch)
    assert set(times) == set(VERBS)
    assert frame_bytes > 20
    predicted = predict(registry.strategy("json_lines"), "row", schema.data)
    assert predicted is not None
    assert predicted.frame_bytes_per_record == 110 + 20
