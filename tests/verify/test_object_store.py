"""hudi-rs's reader on an object store: moto's S3 server on the loopback."""

from __future__ import annotations

import logging
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from obstore.store import S3Store

from serde_lab.verify.readers import HudiRs
from tests.verify.hand_made_table import HandMadeTable

INSTANT = "20250101000000000"


@pytest.fixture
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        made = urllib.request.Request(f"http://{host}:{port}/lake", method="PUT")
        with urllib.request.urlopen(made):
            yield f"http://{host}:{port}"
    finally:
        server.stop()


def test_rows_facts_and_archive(endpoint: str, tmp_path: Path) -> None:
    table = HandMadeTable(tmp_path / "t").create()
    table.write(INSTANT, {"": pa.table({"k": [1, 2], "v": ["x", "y"]})})
    store = S3Store(
        "lake",
        prefix="t",
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="made",
        secret_access_key="up",
        client_options={"allow_http": True},
    )
    for path in table.folder.rglob("*"):
        if path.is_file():
            obstore.put(store, str(path.relative_to(table.folder)), path.read_bytes())
    options = {
        "aws_endpoint": endpoint,
        "aws_region": "us-east-1",
        "aws_access_key_id": "made",
        "aws_secret_access_key": "up",
        "aws_allow_http": "true",
    }
    reader = HudiRs("s3://lake/t", options=options)
    assert sorted(reader.table()["v"].to_pylist()) == ["x", "y"]
    assert reader.facts().instants == (INSTANT,)
    assert not reader.facts().archived
    obstore.put(store, ".hoodie/archived/.commits_.archive.1_1-0-1", b"")
    assert reader.facts().archived
