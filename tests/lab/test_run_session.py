"""The end of a session: Spark's errors are words by then, since their text is in the JVM that ends."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from serde_lab.errors import LabError
from serde_lab.lab.session import run_session
from serde_lab.lab.session.run_session import RunSession


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
