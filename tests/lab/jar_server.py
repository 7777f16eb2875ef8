"""A Maven repository on this machine that serves one small jar, and misbehaves if it is asked to."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from serde_lab.lab.jars import manifest as jars
from serde_lab.lab.jars import repository as maven_repository
from serde_lab.lab.jars.manifest import Jar

CONTENT = bytes(range(256)) * 16_000
"""4 MB, more than one read of the download."""

JAR = Jar(
    title="a small jar",
    group="org.example.small",
    artifact="small-bundle_2.12",
    version="1.0",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size_bytes=len(CONTENT),
    variable="SERDE_LAB_SMALL_JAR",
)


@dataclass
class JarServer:
    """What is served and what was asked for.

    `cuts`: how many bytes each of the next answers sends before the connection breaks.
    """

    url: str = ""
    content: bytes = CONTENT
    status: int = 200
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def asked_ranges(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.asked]


@contextmanager
def served(certificate: Path | None = None) -> Iterator[JarServer]:
    """A server on this machine, over TLS if it has a certificate with its key."""
    server = JarServer()
    server.may_answer.set()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            server.asked.append((self.path, dict(self.headers)))
            assert server.may_answer.wait(60)
            _answer(self, server)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
            scheme = "https"
        server.url = f"{scheme}://127.0.0.1:{listener.server_port}"
        # refused handshakes are what some tests want
        listener.handle_error = lambda *_: None  # type: ignore[method-assign, misc]
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()


def _answer(handler: BaseHTTPRequestHandler, server: JarServer) -> None:
    stated = handler.headers.get("Range") if server.ranges else None
    start = int(stated.removeprefix("bytes=").rstrip("-")) if stated else 0
    status = server.status
    if status == 200 and stated:
        status = 206 if start < len(server.content) else 416
    body = server.content[start:] if status in (200, 206) else b"no"
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    if status == 206:
        total = len(server.content)
        handler.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
    handler.end_headers()
    handler.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)
    handler.close_connection = True


def no_other_home(monkeypatch: pytest.MonkeyPatch, *homes: Path) -> None:
    """Only `homes` are looked into: the jar may be in the home of whoever runs the tests."""
    for module in (jars, maven_repository):
        monkeypatch.setattr(module, "homes", lambda environ: list(homes))
