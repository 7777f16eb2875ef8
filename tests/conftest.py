"""Fixtures that tests of several rooms share: one Spark session for the whole test run."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from serde_lab.errors import SetupError
from tests.counts import COLLECTED
from tests.short_lived import ENVIRONMENT, NO_JVM

_FEW_TASKS = {"spark.sql.shuffle.partitions": "3", "spark.default.parallelism": "3"}
"""Of queries and Hudi writes that name no number themselves: Spark's 200 tasks have some rows each."""
_LONG = ("spark", "slow")
"""Markers of tests that take seconds, the longest first."""

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


def _plain_environment() -> None:
    """Takes from this process and its children what somebody's environment changes of what they print,
    and of how they come to servers on this machine; their Spark sessions are short-lived. Their time zone
    is that of the lab's sessions."""
    printing = {"FORCE_COLOR", "CLICOLOR_FORCE", "PY_COLORS", "GITHUB_ACTIONS", "COLUMNS", "LINES"}
    # of a git hook that runs the tests, and of other accounts than those of the made-up object store
    elsewhere = {"GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"}
    elsewhere |= {name for name in os.environ if name.startswith("AWS_")} - {"AWS_CA_BUNDLE"}
    for name in printing | elsewhere:
        os.environ.pop(name, None)
    os.environ["NO_COLOR"], os.environ["TZ"] = "1", "UTC"
    time.tzset()
    os.environ.update(ENVIRONMENT)
    # of hundreds of short processes, each would compile pandas, pyarrow and the lab anew
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    for name in ("NO_PROXY", "no_proxy"):
        here = [os.environ.get(name, ""), "127.0.0.1", "localhost"]
        os.environ[name] = ",".join(filter(None, here))


def _temporary_folders_in_memory() -> None:
    """Tables, event logs and sessions of tests wait for no disk, where memory has room for them."""
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not memory.is_dir() or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return
    if shutil.disk_usage(memory).free > 8 << 30:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)


_plain_environment()
_temporary_folders_in_memory()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test with the shared session says so by its marker; `test_counts.py` counts all tests.

    Files with long tests come first, so that no process is left with one of them at the end.
    """
    config.stash[COLLECTED] = list(items)
    marked = {mark: {i.path for i in items if i.get_closest_marker(mark)} for mark in _LONG}
    items.sort(key=lambda item: [item.path not in marked[mark] for mark in _LONG])
    unmarked = [
        item.nodeid
        for item in items
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("spark")
    ]
    if unmarked:
        raise pytest.UsageError(f"without the marker spark, though they use it: {unmarked}")


def pytest_collection_finish() -> None:
    """The suite's own objects outlive all tests: a collection that looked at them would take 0.2 s."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_unconfigure() -> None:
    """Otherwise libraries would report at the end of the process what was never collected as leaks."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test without the marker is refused a JVM, its own as well as that of a process that it starts."""
    os.environ.update(ENVIRONMENT if item.get_closest_marker("spark") else NO_JVM)


if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def _short_runs() -> None:
    """Runs in this process are shorter."""
    import tests.short_runs  # noqa: F401 - changes this process


@pytest.fixture(scope="session")
def found_bundle() -> Path | SetupError:
    """Apache Hudi's bundle, fetched if it is not on this machine, or why it is not to be had."""
    from serde_lab.lab.jars.manifest import HUDI, fetch_jar

    try:
        return fetch_jar(HUDI).path
    except SetupError as exc:
        return exc


@pytest.fixture(scope="session")
def hudi_bundle(found_bundle: Path | SetupError) -> Path:
    """Apache Hudi's bundle; a test that needs it does not pass without."""
    if isinstance(found_bundle, SetupError):
        pytest.fail(str(found_bundle))
    return found_bundle


@pytest.fixture(scope="session")
def found_connector() -> list[Path] | SetupError:
    """The jars of Spark's connector for Kafka, fetched like the bundle, or why they are not to be had."""
    from serde_lab.lab.jars.manifest import KAFKA_CONNECTOR, fetch_jars

    try:
        return fetch_jars(KAFKA_CONNECTOR)
    except SetupError as exc:
        return exc


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory,
    found_bundle: Path | SetupError,
    found_connector: list[Path] | SetupError,
) -> Iterator[SparkSession]:
    """The one session of the test run, with Apache Hudi's bundle and the connector where they were found."""
    from serde_lab.lab.session.session import SessionSettings, start_session, stop_session
    from serde_lab.peers.apache_hudi import SESSION_CONF

    bundle = (str(found_bundle),) if isinstance(found_bundle, Path) else ()
    connector = [] if isinstance(found_connector, SetupError) else found_connector
    settings = SessionSettings(
        cores=2,
        driver_memory="3g",
        event_log_folder=str(tmp_path_factory.mktemp("event-log")),
        jars=(*bundle, *map(str, connector)),
        conf=_FEW_TASKS | (SESSION_CONF if bundle else {}),
    )
    session = start_session(settings)
    yield session
    stop_session(session)
