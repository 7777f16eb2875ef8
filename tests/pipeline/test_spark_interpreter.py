"""Workers of another Python are found before data move, in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from serde_lab.errors import LabError, SetupError
from serde_lab.pipeline.spark import worker as spark_worker
from serde_lab.pipeline.spark.exchange import on_purpose
from serde_lab.pipeline.spark.worker import check_workers, reason_in

BARE = 'exec "{python}" -I -S "$@"\n'
OTHER_VERSION = 'echo "which is Python 3.9"\n'


class Context:
    """What a check asks of a session."""

    applicationId = "app-1"  # noqa: N815 - pyspark's name
    environment: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, executable: Path | str, master: str = "local[2]") -> None:
        self.pythonExec, self.master = str(executable), master

    def parallelize(self, numbers: list[int], slices: int) -> Any:
        return SimpleNamespace(
            map=lambda call: SimpleNamespace(collect=lambda: [call(one) for one in numbers])
        )


def session(*arguments: Any) -> Any:
    return SimpleNamespace(sparkContext=Context(*arguments))


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "python"
        path.write_text("#!/bin/sh\n" + text.format(python=sys.executable))
        path.chmod(0o755)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BARE, "which has no pyarrow and no serde_lab"),
        (OTHER_VERSION, "which is Python 3.9"),
        ("echo broken >&2; exit 3\n", r"which cannot be started \(broken\)"),
    ],
    ids=["no packages", "another version", "broken"],
)
def test_another_python_is_refused_with_both_interpreters_and_what_to_set(
    text: str, problem: str, script: Callable[[str], Path]
) -> None:
    path = script(text)
    with pytest.raises(SetupError, match=problem) as caught:
        check_workers(session(path))
    assert str(path) in str(caught.value)
    assert f"PYSPARK_PYTHON={sys.executable}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_interpreter_that_is_not_there_is_refused() -> None:
    with pytest.raises(SetupError, match="No such file"):
        check_workers(session("/nowhere/python"))


def test_a_cluster_is_asked_by_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    check_workers(session("./environment/bin/python", "spark://host:7077"))
    monkeypatch.setattr(spark_worker, "_PROBE", "said = 'which has no pyarrow'")
    with pytest.raises(SetupError, match="which has no pyarrow"):
        check_workers(session("./other/bin/python", "spark://host:7077"))


def test_the_own_interpreter_is_taken_without_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", looked)
    check_workers(session(sys.executable))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    check_workers(session("python3"))


def test_another_interpreter_with_the_same_packages_is_asked_once(
    script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = session(script('exec "{python}" "$@"\n'))
    check_workers(spark)
    monkeypatch.setattr(subprocess, "run", None)
    check_workers(spark)


@pytest.mark.spark
def test_a_write_is_refused_before_there_is_a_table(
    spark: Any, tmp_path: Path, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    import serde_lab

    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(script(BARE)))
    rows = spark.range(3)
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
    }
    with pytest.raises(SetupError, match="which has no pyarrow"):
        serde_lab.write(rows, str(tmp_path / "table"), options)
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
            '  File "a.py", line 1, in f\nValueError: no such day\n\tat org.apache.spark.X',
            "ValueError: no such day",
        ),
        (
            "An error occurred while calling o9.collectToPython.\n: org.apache.spark.SparkException: Job"
            " aborted\n\tat a.B\nCaused by: java.io.IOException: outer\n\tat a.C\n"
            "Caused by: java.lang.IllegalStateException: the offset was deleted\n\tat a.D",
            "java.lang.IllegalStateException: the offset was deleted",
        ),
        (
            "An error occurred while calling o9.x.\n: java.lang.OutOfMemoryError: heap\n\tat a.B",
            "java.lang.OutOfMemoryError: heap",
        ),
        (
            ": org.apache.spark.SparkException: Job aborted\n\tat a.B\n"
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n"
            "\tat a.C\nCaused by: java.io.EOFException\n\tat a.D",
            "Python worker exited unexpectedly (crashed)",
        ),
        ("something else", "something else"),
        ("", "no reason was given"),
    ],
)
def test_the_innermost_cause_of_a_failed_job_is_named(text: str, reason: str) -> None:
    assert reason_in(text) == reason


def test_a_batch_that_java_cannot_hold_is_told_what_to_set() -> None:
    text = (
        ": org.apache.arrow.vector.util.OversizedAllocationException: Memory required for vector is"
    )
    with pytest.raises(LabError, match="max_records_per_batch lower"), on_purpose():
        raise RuntimeError(text)
