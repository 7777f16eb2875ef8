"""Fixtures that tests of several rooms share: one Spark session for the whole test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

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
    from serde_lab.lab.session import SessionSettings, spark_conf, start_session, stop_session
    from tests.spark_cluster import SHORT_LIVED

    jars, conf = _hudi()
    settings = SessionSettings(
        cores=2,
        driver_memory="3g",
        event_log_folder=str(tmp_path_factory.mktemp("event-log")),
        jars=jars,
        conf=conf,
    )
    # tests run everything once: code compiled well comes too late for them
    java = f"{spark_conf(settings)[_JAVA_OPTIONS]} {SHORT_LIVED}"
    session = start_session(replace(settings, conf={**conf, _JAVA_OPTIONS: java}))
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
