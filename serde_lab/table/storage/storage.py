"""Access to a table's files: one folder, local or in an object store, addressed by relative paths.

Errors of the storage become StorageError sentences. A file appears under its name whole or not at all:
obstore writes a local file beside its place (`<name>#1`, which no reader takes for a table file) and links
it, and an object store shows an object once it is complete.

`put_new` is the only way to write the timeline and data files: it never overwrites, so that of two writers of
one name exactly one wins.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from stat import S_ISREG
from typing import Any, Self, TypeAlias
from urllib.parse import unquote, urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, MemoryStore, from_url

from serde_lab.errors import StorageError, UsageError
from serde_lab.files import is_utf8

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer

REQUEST_TIMEOUT = "60s"
"""How long one request to an object store may take before it counts as failed."""


@dataclass(frozen=True, slots=True, order=True)
class StoredFile:
    """A file as a listing shows it. `path` is relative to the storage's folder."""

    path: str
    size_bytes: int
    modified_epoch_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


_PATH = attrgetter("path")


class Storage:
    """A folder of files. Pickling it keeps URL and options, not the connection.

    All paths are relative, with `/`. Raises StorageError for whatever the storage refuses.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        self._root = _local_root(url)
        self.url = url.rstrip("/") if self._root is None else str(self._root)
        if not is_utf8(self.url):
            raise UsageError(
                f"{self.url}: the path is not UTF-8, and pyarrow and hudi-rs read no such table"
            )
        self._connected: Any = None

    @classmethod
    def open(cls, url: str | os.PathLike[str], **options: Any) -> Self:
        """A local folder (created by the first put) or an object-store URL such as `s3://bucket/prefix`.

        `options` are obstore's configuration keys (`endpoint`, `region`, …); missing ones come from the
        environment.
        """
        return cls(os.fspath(url), options)

    def __reduce__(self) -> tuple[Callable[..., Storage], tuple[str, dict[str, Any]]]:
        return type(self), (self.url, self.options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    @property
    def is_local(self) -> bool:
        return self._root is not None

    @property
    def connection(self) -> Any:
        """The obstore store, created on first use."""
        if self._connected is None:
            if self._root is not None:
                if not self._root.is_dir():
                    # reading must not create the folder: until the first put it counts as empty
                    return MemoryStore()
                self._connected = LocalStore(self._root)
            else:
                client: dict[str, Any] = {"timeout": REQUEST_TIMEOUT, "allow_http": True}
                client.update(self.options.get("client_options", {}))
                rest = {k: v for k, v in self.options.items() if k != "client_options"}
                try:
                    connect: Any = from_url  # its overloads name one store each
                    self._connected = connect(_literal(self.url), client_options=client, **rest)
                except (BaseError, ValueError) as exc:
                    raise StorageError(f"{self.url}: cannot be opened: {_first_line(exc)}") from exc
        return self._connected

    def local_path(self, path: str) -> Path | None:
        """The file's local path, or None in an object store."""
        return None if self._root is None else self._root / path

    def describe(self, path: str) -> str:
        """The full name of a file, for messages."""
        return f"{self.url}/{path}"

    # Every operation below uses these primitives; tests override them to make them fail.

    def _put(self, path: str, data: Bytes, mode: Any) -> None:
        if self._root is not None and self._connected is None:
            self._root.mkdir(parents=True, exist_ok=True)
        # one request, never multipart, so that the file appears at once
        obstore.put(
            self.connection, path, memoryview(data).cast("B"), mode=mode, use_multipart=False
        )

    def _get(self, path: str) -> bytes:
        return bytes(obstore.get(self.connection, path).bytes())

    def _delete(self, path: str) -> None:
        obstore.delete(self.connection, path)

    def _list(self, folder: str) -> Iterator[Any]:
        for chunk in obstore.list(self.connection, folder or None):
            yield from chunk

    def put_new(self, path: str, data: Bytes = b"") -> bool:
        """Create the file; False, and nothing changed, if it exists already."""
        with self._sentences("create", path):
            try:
                self._put(path, data, "create")
            except AlreadyExistsError:
                return False
        return True

    def replace(self, path: str, data: Bytes) -> None:
        """Write the file, overwriting any: for hoodie.properties, which Hudi rewrites too, and others, but
        never for instants and data files."""
        with self._sentences("write", path):
            self._put(path, data, "overwrite")

    def get(self, path: str) -> bytes:
        """The file's bytes. Raises StorageError if there is no such file."""
        found = self.get_if_present(path)
        if found is None:
            raise StorageError(f"{self.describe(path)}: no such file")
        return found

    def get_if_present(self, path: str) -> bytes | None:
        """The file's bytes, or None if there is no such file."""
        with self._sentences("read", path):
            try:
                return self._get(path)
            except (NotFoundError, FileNotFoundError):
                return None

    def open_input(self, path: str) -> pa.NativeFile:
        """The file for random access, memory-mapped if it is local."""
        local = self.local_path(path)
        if local is None:
            return pa.BufferReader(self.get(path))
        with self._sentences("read", path):
            try:
                return pa.memory_map(str(local))
            except FileNotFoundError as exc:
                raise StorageError(f"{self.describe(path)}: no such file") from exc

    def size_bytes(self, path: str) -> int | None:
        """The file's size, or None if there is no such file."""
        local = self.local_path(path)
        with self._sentences("look at", path):
            try:
                if local is None:
                    return int(obstore.head(self.connection, path)["size"])
                found = local.stat()
            except (NotFoundError, FileNotFoundError, NotADirectoryError):
                return None
        return found.st_size if S_ISREG(found.st_mode) else None

    def exists(self, path: str) -> bool:
        return self.size_bytes(path) is not None

    def delete(self, path: str) -> None:
        """Remove the file; no error if there is none."""
        with self._sentences("delete", path):
            try:
                self._delete(path)
            except (NotFoundError, FileNotFoundError):
                return

    def delete_folder(self, folder: str) -> None:
        """Remove everything below `folder`; no error if there is nothing."""
        for file in self.list_files(folder):
            self.delete(file.path)
        local = self.local_path(folder)
        if local is not None:
            shutil.rmtree(local, ignore_errors=True)

    def make_folder(self, folder: str) -> None:
        """Make an empty folder if the storage has folders (Java looks for some of them)."""
        local = self.local_path(folder)
        if local is not None:
            with self._sentences("make the folder", folder):
                local.mkdir(parents=True, exist_ok=True)

    def list_files(self, folder: str = "") -> list[StoredFile]:
        """All files below `folder`, at any depth, sorted by path."""
        with self._sentences("list", folder):
            return sorted(map(_stored_file, self._list(folder)), key=_PATH)

    def list_names(self, folder: str) -> list[str]:
        """The names of the files directly inside `folder`, sorted; on a disk no file is looked at."""
        local = self.local_path(folder)
        if local is None:
            return [file.name for file in self.list_folder(folder)[1]]
        with self._sentences("list", folder):
            try:
                with os.scandir(local) as entries:
                    return sorted(entry.name for entry in entries if entry.is_file())
            except FileNotFoundError:
                return []

    def list_folder(self, folder: str = "") -> tuple[list[str], list[StoredFile]]:
        """The folders and the files directly inside `folder`, sorted by path."""
        with self._sentences("list", folder):
            found = obstore.list_with_delimiter(self.connection, folder or None)
            return (
                sorted(found["common_prefixes"]),
                sorted(map(_stored_file, found["objects"]), key=_PATH),
            )

    @contextmanager
    def _sentences(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except (BaseError, OSError, ValueError) as exc:  # ValueError: an impossible path
            raise StorageError(f"{self.describe(path)}: cannot {verb}: {_first_line(exc)}") from exc


def _local_root(url: str) -> Path | None:
    try:
        scheme = urlsplit(url).scheme
    except ValueError as exc:
        raise UsageError(f"{url!r} is no storage URL: {exc}") from exc
    if not scheme or url.startswith(("/", ".")):
        return Path(url).absolute()
    if scheme == "file":
        parts = urlsplit(_literal(url))
        if parts.netloc not in ("", "localhost"):
            raise UsageError(
                f"storage URL {url!r} names the host {parts.netloc!r}; that of a local folder is file:///…"
            )
        return Path(unquote(parts.path)).absolute()
    if scheme in ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory"):
        return None
    raise UsageError(
        f"storage URL {url!r} has the scheme {scheme!r}; known are file, s3, s3a, gs, az, abfs, abfss and"
        " memory"
    )


def _literal(url: str) -> str:
    """`url` where # and ? are of its path, as for Apache Hudi; others would cut the path there."""
    return url.replace("#", "%23").replace("?", "%3F")


def _stored_file(entry: Mapping[str, Any]) -> StoredFile:
    # a commit lists hundreds of files
    modified_ms = round(entry["last_modified"].timestamp() * 1000)
    return StoredFile(entry["path"], entry["size"], modified_ms)


def _first_line(exc: BaseException) -> str:
    # obstore appends a dump of the Rust error below its own sentence
    lines = str(exc).strip().splitlines()
    return lines[0] if lines else type(exc).__name__
