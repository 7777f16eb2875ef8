"""Fixtures that tests of several rooms share: one Spark session for the whole test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

# The same examples each time, whatever an earlier run left behind, so that a red run is the change's
# doing; new ones where somebody looks for them. A slow machine is no fault of a test: none judges time.
_SLOW = [HealthCheck.too_slow]
hypothesis_settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, suppress_health_check=_SLOW
)
hypothesis_settings.register_profile(
    "explore", deadline=None, print_blob=True, suppress_health_check=_SLOW
)
hypothesis_settings.load_profile(
    "explore" if os.environ.get("SERDE_LAB_EXPLORE") == "1" else "same"
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the test run, with the Apache Hudi bundle where it was found."""
    from serde_lab.lab.session import SessionSettings, start_session, stop_session
    from tests.short_lived import short_lived

    jars, conf = _hudi()
    settings = SessionSettings(
        cores=2,
        driver_memory="3g",
        event_log_folder=str(tmp_path_factory.mktemp("event-log")),
        jars=jars,
        conf=conf,
    )
    session = start_session(short_lived(settings))
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
