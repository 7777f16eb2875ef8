"""Fixtures that tests of several rooms share: one Spark session for the whole test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# In CI the same examples each time, so that a red run is the change's doing; elsewhere new ones each
# time. A slow machine is no fault of a test: tests never judge time.
_SLOW = [HealthCheck.too_slow]
hypothesis_settings.register_profile(
    "ci", derandomize=True, deadline=None, print_blob=True, suppress_health_check=_SLOW
)
hypothesis_settings.register_profile("here", deadline=None, suppress_health_check=_SLOW)
hypothesis_settings.load_profile("ci" if os.environ.get("CI") else "here")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the test run, with the Apache Hudi bundle where it was found."""
    from serde_lab.lab.session import SessionSettings, start_session, stop_session

    jars, conf = _hudi()
    settings = SessionSettings(
        cores=2,
        driver_memory="3g",
        event_log_folder=str(tmp_path_factory.mktemp("event-log")),
        jars=jars,
        conf=conf,
    )
    session = start_session(settings)
    yield session
    stop_session(session)


def _hudi() -> tuple[tuple[str, ...], dict[str, str]]:
    """The bundle, fetched if need be, and the session settings that it needs; nothing without it."""
    from serde_lab.errors import SetupError
    from serde_lab.peers import apache_hudi

    try:
        bundle = apache_hudi.fetch_bundle()
    except SetupError:
        return (), {}
    return (str(bundle),), dict(apache_hudi.SESSION_CONF)
