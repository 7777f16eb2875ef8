"""Finds the jars that `jars.toml` pins, or downloads them into the cache, without Maven or Java.

A jar is looked for in this order: a file that the caller or the jar's environment variable names, the
cache, Maven's local repositories, and Ivy's caches in HOME and in the account's own home folder. A file
found in the last three counts only if its SHA-256 is the pinned one. A named file is used as it is, and
`FoundJar.note` says how it differs. Jars of a set, such as Kafka's broker, have no variable.
"""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serde_lab.errors import SetupError
from serde_lab.files import locked
from serde_lab.inputs.parts import OnProgress, silent
from serde_lab.lab.inputs.batches import Say
from serde_lab.lab.inputs.prepared import default_cache
from serde_lab.lab.jars.repository import download, homes, local_repositories, repository


@dataclass(frozen=True, slots=True)
class Jar:
    """A pinned jar: its Maven coordinates, its size and hash, and the variable that overrides it, or ""."""

    title: str
    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int
    variable: str = ""

    @property
    def coordinates(self) -> str:
        """The coordinates in the notation of Maven and Spark."""
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file_name(self) -> str:
        """The name that every Maven repository gives the file."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """The file's path in a Maven repository, relative to the repository's root."""
        return "/".join((*self.group.split("."), self.artifact, self.version, self.file_name))


@dataclass(frozen=True, slots=True)
class FoundJar:
    """A jar on this machine and where it came from; `note` is a sentence if it is not the pinned file."""

    path: Path
    origin: str
    note: str = ""


def manifest() -> dict[str, tuple[Jar, ...]]:
    """All pinned jars, by the names in `jars.toml` of their sets; a jar alone is a set of one."""
    with Path(__file__).with_name("jars.toml").open("rb") as file:
        return {name: tuple(_jars(entry)) for name, entry in tomllib.load(file).items()}


def _jars(entry: Mapping[str, Any]) -> Iterator[Jar]:
    if "jars" not in entry:
        yield Jar(**entry)
        return
    for group, artifact, version, size_bytes, sha256 in entry["jars"]:
        yield Jar(entry["title"], group, artifact, version, sha256, size_bytes)


HUDI = manifest()["hudi"][0]
KAFKA_BROKER = manifest()["kafka_broker"]
KAFKA_CONNECTOR = manifest()["kafka_connector"]
FORMATS = {"delta_merge": manifest()["delta"], "iceberg_merge": manifest()["iceberg"]}
"""The jars of Delta Lake and Iceberg, by the control that needs them."""


def find_jar(
    jar: Jar, stated: str = "", environ: Mapping[str, str] = os.environ
) -> FoundJar | None:
    """The jar on this machine, or None. `stated` is what `--hudi-jar` names, "" for nothing.

    Raises SetupError if a named path holds no file, or if Maven's settings cannot be read.
    """
    for path, origin in ((stated, "--hudi-jar"), (environ.get(jar.variable, ""), jar.variable)):
        if path:
            return _named(jar, path, origin)
    for place, origin in _places(jar, environ):
        if _differs(jar, place) == "":
            return FoundJar(place.resolve(), origin)
    return None


def fetch_jar(
    jar: Jar,
    stated: str = "",
    environ: Mapping[str, str] = os.environ,
    progress: OnProgress = silent,
    say: Say = lambda text: None,
) -> FoundJar:
    """The jar, fetched into the cache if it is not on this machine yet.

    One process fetches at a time. What an interrupted one has received is kept and continued.
    Raises SetupError if the jar cannot be fetched or is not the pinned one.
    """
    found = find_jar(jar, stated, environ)
    if found is not None:
        return found
    target = _cached(jar, environ)
    try:
        with locked(
            target.parent, f"waiting for another process that is fetching {jar.title}", say
        ):
            found = find_jar(jar, stated, environ)
            return found or _fetched(jar, target, environ, progress)
    except OSError as exc:
        why = f"{exc.strerror or exc}"
        raise SetupError(
            f"{target.parent} cannot be written: {why}", by_hand(jar, environ)
        ) from exc


def find_jars(
    jars: Sequence[Jar], environ: Mapping[str, str] = os.environ
) -> tuple[list[Path], list[Jar]]:
    """Those of `jars` that are on this machine, and those that are not. Raises what `find_jar` raises."""
    found = [(jar, find_jar(jar, environ=environ)) for jar in jars]
    return [at.path for _, at in found if at is not None], [jar for jar, at in found if at is None]


def fetch_jars(
    jars: Sequence[Jar],
    environ: Mapping[str, str] = os.environ,
    progress: OnProgress = silent,
    say: Say = lambda text: None,
) -> list[Path]:
    """All of `jars`; those that are not on this machine are fetched. Raises what `fetch_jar` raises."""
    _, missing = find_jars(jars, environ)
    whole = sum(jar.size_bytes for jar in missing)
    before = 0

    def report(task: str, done: int, total: int) -> None:
        progress(missing[0].title, before + done, whole)

    for jar in missing:
        fetch_jar(jar, "", environ, report, say)
        before += jar.size_bytes
    return find_jars(jars, environ)[0]


def how_to_get(jars: Sequence[Jar], option: str) -> str:
    """Advice for getting these jars: the option of `doctor` that downloads them, or by hand."""
    size = sum(jar.size_bytes for jar in jars) / 1e6
    by_itself = f"run `serde-lab doctor {option}` ({size:.0f} MB)"
    return f"{by_itself}, or by hand what serde_lab/lab/jars/jars.toml lists, such as: {by_hand(jars[0])}"


def by_hand(jar: Jar, environ: Mapping[str, str] = os.environ) -> str:
    """Advice for getting the file without the lab: what to download, and where to put it."""
    try:
        source = repository(environ).url + jar.repository_path
    except SetupError:
        source = f"{jar.repository_path} from a Maven repository"
    target = _cached(jar, environ).absolute()
    variable = f", or name the file in {jar.variable}" if jar.variable else ""
    return f"download {source} to {target}{variable}"


def _fetched(jar: Jar, target: Path, environ: Mapping[str, str], progress: OnProgress) -> FoundJar:
    source = repository(environ)
    url = source.url + jar.repository_path
    part = target.with_name(f"{target.name}.part")

    def report(done: int) -> None:
        progress(f"{jar.artifact} {jar.version}", done, jar.size_bytes)

    try:
        download(url, part, jar.size_bytes, source.authorization, report, environ)
    except SetupError as exc:
        advice = "; ".join(filter(None, (exc.hint, by_hand(jar, environ))))
        raise SetupError(
            f"{jar.title} cannot be fetched from {url} ({source.origin}): {exc.message}", advice
        ) from exc
    wrong = _differs(jar, part)
    if wrong:
        part.unlink()
        raise SetupError(
            f"{url} ({source.origin}) is not the pinned file of {jar.title}: {wrong}",
            by_hand(jar, environ),
        )
    part.replace(target)
    return FoundJar(target.resolve(), f"fetched from {source.url}")


def _named(jar: Jar, path: str, origin: str) -> FoundJar:
    if not Path(path).is_file():
        raise SetupError(
            f"{origin} names {path}, which is not a file", hint=f"expected {jar.coordinates}"
        )
    wrong = _differs(jar, Path(path))
    note = f"{path} ({origin}) is not the published {jar.coordinates}: {wrong}" if wrong else ""
    return FoundJar(Path(path).resolve(), origin, note)


def _cached(jar: Jar, environ: Mapping[str, str]) -> Path:
    return default_cache(environ) / "jars" / jar.file_name


def _places(jar: Jar, environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Yield files that may be the jar, with their origin; lazily, so that a hit ends the search."""
    yield _cached(jar, environ), "the cache"
    for folder in local_repositories(environ):
        yield folder / jar.repository_path, "Maven's local repository"
    for home in homes(environ):
        files = [
            *home.glob(f".ivy2*/cache/{jar.group}/{jar.artifact}/jars/{jar.file_name}"),
            *home.glob(f".ivy2*/jars/{jar.group}_{jar.file_name}"),
        ]
        for file in sorted(files):
            yield file, "Ivy's cache"


def _differs(jar: Jar, file: Path) -> str:
    """How `file` differs from the pinned jar, "" if it does not. An unreadable file differs."""
    try:
        size = file.stat().st_size
        if size != jar.size_bytes:
            return f"it has {size:,} bytes, expected {jar.size_bytes:,}"
        with file.open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as exc:
        return f"it cannot be read: {exc.strerror}"
    return "" if found == jar.sha256 else f"its SHA-256 is {found}, expected {jar.sha256}"
