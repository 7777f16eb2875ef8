"""Downloads one file of known size over HTTPS, resumably, with Python's standard library.

Proxies come from the usual variables (`https_proxy`, `no_proxy`). Certificates come from the system and
from the files that SSL_CERT_FILE and REQUESTS_CA_BUNDLE name.
"""

from __future__ import annotations

import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path

from serde_lab.errors import SetupError

CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")

_ATTEMPTS = 4
_PAUSE_S = 1.0
_TIMEOUT_S = 60
_CHUNK_BYTES = 1 << 20


def download(
    url: str,
    part: Path,
    size_bytes: int,
    authorization: str = "",
    progress: Callable[[int], None] = lambda done: None,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Download the file at `url` to `part`, continuing what `part` already holds.

    A broken connection is retried a few times. `progress` gets the number of bytes so far. Raises
    SetupError with the reason alone; the bytes received so far stay in `part`.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "serde_lab"})
    if authorization:  # must not follow a redirect to another server
        request.add_unredirected_header("Authorization", authorization)
    secure = urllib.request.HTTPSHandler(context=_trusted(environ))
    opener = urllib.request.build_opener(secure)
    with part.open("ab", buffering=0) as file:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return _receive(opener, request, file, size_bytes, progress)
            except (OSError, http.client.HTTPException) as exc:
                if attempt == _ATTEMPTS or not _may_succeed_later(exc):
                    raise _failure(exc) from exc
                if isinstance(exc, urllib.error.HTTPError) and exc.code == 416:
                    file.truncate(0)  # the server's file is shorter than `part`
            time.sleep(_PAUSE_S)
    return None


def _receive(
    opener: urllib.request.OpenerDirector,
    request: urllib.request.Request,
    file: FileIO,
    size_bytes: int,
    progress: Callable[[int], None],
) -> None:
    """Receive over one connection. Raises OSError or HTTPException if another attempt may succeed."""
    done = file.seek(0, os.SEEK_END)
    if done > size_bytes:
        done = file.truncate(0)
    request.remove_header("Range")
    if done == size_bytes:
        return progress(done)
    if done:
        request.add_header("Range", f"bytes={done}-")
    with opener.open(request, timeout=_TIMEOUT_S) as answer:
        if not answer.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
            done = file.truncate(0)  # the server sends the whole file
        stated = answer.headers.get("Content-Length", "")
        if stated.isdigit() and done + int(stated) != size_bytes:
            raise SetupError(
                f"the file has {done + int(stated):,} bytes on the server, expected {size_bytes:,}"
            )
        while chunk := answer.read(min(_CHUNK_BYTES, size_bytes - done)):
            _write(file, chunk)
            done += len(chunk)
            progress(done)
    if done < size_bytes:
        raise http.client.HTTPException(
            f"the connection ended after {done:,} of {size_bytes:,} bytes"
        )
    return None


def _write(file: FileIO, chunk: bytes) -> None:
    rest = memoryview(chunk)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError as exc:
        raise SetupError(f"{file.name} cannot be written: {exc.strerror}") from exc


def _trusted(environ: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in CERTIFICATES:
        stated = environ.get(name)
        if stated:
            place = {"capath" if Path(stated).is_dir() else "cafile": stated}
            try:
                context.load_verify_locations(**place)
            except OSError as exc:  # ssl.SSLError is one
                why = exc.strerror or exc
                raise SetupError(f"{name} names {stated}, which cannot be read: {why}") from exc
    return context


def _reason(exc: Exception) -> object:
    return exc.reason if isinstance(exc, urllib.error.URLError) else exc


def _may_succeed_later(exc: Exception) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(exc, urllib.error.HTTPError):
        return exc.code >= 500 or exc.code in (408, 416)
    return not isinstance(_reason(exc), ssl.SSLCertVerificationError)


def _failure(exc: Exception) -> SetupError:
    """The error as a sentence for the user."""
    if isinstance(exc, urllib.error.HTTPError):
        return SetupError(f"the server answers {exc.code} {exc.reason}")
    reason = _reason(exc)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return SetupError(
            f"the server's certificate is refused: {reason.verify_message}",
            hint=f"name a file with your company's certificates in {CERTIFICATES[0]}",
        )
    if isinstance(reason, TimeoutError):
        return SetupError(f"no answer from the server for {_TIMEOUT_S} s")
    return SetupError(str(getattr(reason, "strerror", None) or reason))
