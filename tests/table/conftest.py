"""Storages for the table's tests: a local folder, and S3 as moto's server on the loopback has it."""

from __future__ import annotations

import itertools
import logging
import urllib.request
from collections.abc import Iterator

import pytest

from serde_lab.table.storage.storage import Storage

_names = itertools.count()


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """Options of a bucket named `lake` in an S3 server that lives as long as the tests."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = {
            "endpoint": f"http://{host}:{port}",
            "access_key_id": "made",
            "secret_access_key": "up",
            "region": "us-east-1",
        }
        # a PUT of the bucket itself makes it: no need of another S3 client
        url = f"{options['endpoint']}/lake"
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT")):
            yield options
    finally:
        server.stop()


@pytest.fixture(params=["local", "s3"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """An empty folder: the same test runs on each kind of storage."""
    if request.param == "local":
        return Storage.open(request.getfixturevalue("tmp_path") / "table")
    options = request.getfixturevalue("s3_options")
    return Storage.open(f"s3://lake/table{next(_names)}", **options)


@pytest.fixture
def local(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    """An empty local folder."""
    return Storage.open(tmp_path_factory.mktemp("lake") / "table")
