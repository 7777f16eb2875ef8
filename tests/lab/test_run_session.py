"""Sessions that points share, and the end of a session.

Spark's errors are words by then, since their text is in the JVM that ends.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.errors import PySparkException

from serde_lab.errors import LabError
from serde_lab.lab.cells.peer_arms import SessionPlan
from serde_lab.lab.run_settings import RunSettings, Silent
from serde_lab.lab.session import run_session
from serde_lab.lab.session.run_session import RunSession, SessionOfPoints
from serde_lab.scenario.loading import load_scenario, sweep_points


class _Bench:
    def end_workers(self) -> None: ...


class _OfJava(PySparkException):
    """As pyspark's own: its text is asked of the JVM."""

    jvm_lives = True

    def __str__(self) -> str:
        if not self.jvm_lives:
            raise ConnectionRefusedError("the JVM is gone")
        return "[AMBIGUOUS_REFERENCE] Reference `a` is ambiguous"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> RunSession:
    found = object.__new__(RunSession)
    found.bench = _Bench()  # type: ignore[assignment]
    found.spark = None  # type: ignore[assignment]
    monkeypatch.setattr(_OfJava, "jvm_lives", True)
    monkeypatch.setattr(
        run_session, "stop_session", lambda _: monkeypatch.setattr(_OfJava, "jvm_lives", False)
    )
    return found


def test_an_error_of_sparks_can_be_read_after_the_end(session: RunSession) -> None:
    with pytest.raises(LabError) as caught, session:
        raise _OfJava(message="")
    assert not _OfJava.jvm_lives
    assert "Reference `a` is ambiguous" in str(caught.value)


@pytest.mark.parametrize("error", [ZeroDivisionError(), KeyboardInterrupt(), LabError("own")])
def test_other_errors_stay_what_they_are(session: RunSession, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, session:
        raise error
    assert caught.value is error
    assert not _OfJava.jvm_lives


class _Counted:
    """Takes the place of a session; knows which are open."""

    open: ClassVar[list[_Counted]] = []

    def __init__(self, scenario: object, settings: object, work: Path, plan: object) -> None:
        self.work = work

    def __enter__(self) -> _Counted:
        self.open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.open.remove(self)


def test_points_share_a_session_for_as_long_as_they_want_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run_session, "RunSession", _Counted)
    plan = SessionPlan(frozenset(), (), {})
    middle, *others = (point.scenario for point in sweep_points(load_scenario("shapes")))
    wide = others[2]
    assert wide != middle
    other = load_scenario("shapes", ["measure.cores=1"])
    with SessionOfPoints(RunSettings(), tmp_path) as points:
        first, new = points.session(middle, plan, Silent())
        again, still_new = points.session(wide, plan, Silent())
        assert (again, new, still_new) == (first, True, False)
        second, new = points.session(other, plan, Silent())
        assert second is not first
        assert new
        assert _Counted.open == [second]
        assert first.work != second.work
    assert not _Counted.open


def test_the_workers_of_a_point_are_gone_and_its_shuffles_are_garbage() -> None:
    called: list[str] = []

    class Bench:
        def __getattr__(self, name: str) -> Any:
            return lambda: called.append(name)

    found = object.__new__(RunSession)
    found.bench = Bench()  # type: ignore[assignment]
    found.settle()
    assert called == ["end_workers", "collect_garbage"]
