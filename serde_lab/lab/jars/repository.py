"""Determines which Maven repository to download from, and downloads files from it.

The repository is the first of: SERDE_LAB_MAVEN_REPOSITORY; what the user's Maven settings say of the
repository `central` (https://maven.apache.org/settings.html: a mirror, or an active profile); the default
of Spark's own resolver, a constant in the Ivy jar that pyspark contains.

A download is of known size, over HTTPS, resumable, and uses Python's standard library. Proxies come from the
usual variables (`https_proxy`, `no_proxy`). Certificates come from the system and from the files that
SSL_CERT_FILE and REQUESTS_CA_BUNDLE name.
"""

from __future__ import annotations

import http.client
import importlib.util
import os
import pwd
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from xml.etree import ElementTree

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


VARIABLE = "SERDE_LAB_MAVEN_REPOSITORY"

_CENTRAL = "central"
_RESOLVER = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
_ROOT = re.compile(rb"\x01..(https://[!-~]*/maven2/)", re.DOTALL)
"""The address of a repository with Maven's layout, as a text constant of a Java class."""


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository: its root, which ends with a slash, and the setting that named it."""

    url: str
    origin: str
    authorization: str = field(default="", repr=False)
    """The value of HTTP's Authorization header, "" for none."""


def repository(environ: Mapping[str, str] = os.environ) -> Repository:
    """The repository to download from. Raises SetupError if the setting that names it is invalid."""
    stated = environ.get(VARIABLE, "").strip()
    if stated:
        return _at(stated, VARIABLE)
    for settings in _all_settings(environ):
        found = settings.central()
        if found is not None:
            server, url = found
            return _at(url, str(settings.file), settings.login(server))
    return _at(_default_root(), "the default of Spark's resolver")


def homes(environ: Mapping[str, str]) -> list[Path]:
    """HOME, and the home folder of the account in the user database if it is another one."""
    found = [Path(environ["HOME"])] if environ.get("HOME") else []
    with suppress(KeyError):  # a container may run under a user id without an account
        found.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    return list(dict.fromkeys(found))


def local_repositories(environ: Mapping[str, str]) -> Iterator[Path]:
    """The folders of Maven's local repositories. Raises SetupError for damaged settings."""
    for home in homes(environ):
        yield home / ".m2" / "repository"
    for settings in _all_settings(environ):
        stated = settings.text(settings.root, "localRepository")
        if stated:
            yield Path(stated)


def _all_settings(environ: Mapping[str, str]) -> Iterator[_Settings]:
    """The user's settings, then those of the Maven installation that the environment names."""
    installed = [environ[name] for name in ("MAVEN_HOME", "M2_HOME") if environ.get(name)]
    files = [home / ".m2" / "settings.xml" for home in homes(environ)]
    files += [Path(folder) / "conf" / "settings.xml" for folder in dict.fromkeys(installed)]
    for file in files:
        try:
            root = ElementTree.fromstring(file.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ElementTree.ParseError) as exc:
            why = getattr(exc, "strerror", None) or exc
            raise SetupError(
                f"Maven's settings {file} cannot be read: {why}",
                hint=f"repair the file, or name a Maven repository in {VARIABLE}",
            ) from exc
        for element in root.iter():  # the namespace differs between versions
            element.tag = element.tag.rpartition("}")[2]
        yield _Settings(file, root, environ)


@dataclass(frozen=True, slots=True)
class _Settings:
    """One settings.xml, its tags without namespaces."""

    file: Path
    root: ElementTree.Element
    environ: Mapping[str, str]

    def central(self) -> tuple[str, str] | None:
        """The id and address of the replacement of Maven's `central`; None if there is none."""
        for mirror in self.root.iterfind("mirrors/mirror"):
            patterns = {one.strip() for one in self.text(mirror, "mirrorOf").split(",")}
            if f"!{_CENTRAL}" in patterns or self.text(mirror, "blocked") == "true":
                continue
            if patterns & {_CENTRAL, "*", "external:*"}:
                return self.text(mirror, "id"), self.text(mirror, "url")
        active = {(one.text or "").strip() for one in self.root.iterfind("activeProfiles/*")}
        for profile in self.root.iterfind("profiles/profile"):
            by_default = self.text(profile, "activation/activeByDefault") == "true"
            if by_default or self.text(profile, "id") in active:
                for one in profile.iterfind("repositories/repository"):
                    if self.text(one, "id") == _CENTRAL:
                        return _CENTRAL, self.text(one, "url")
        return None

    def login(self, server: str) -> tuple[str, str] | None:
        """User and password for the server `server`; None if there is none, or if Maven encrypted it."""
        for one in self.root.iterfind("servers/server"):
            password = self.text(one, "password")
            if self.text(one, "id") == server and not re.fullmatch(r"\{.*\}", password):
                return self.text(one, "username"), password
        return None

    def text(self, element: ElementTree.Element, path: str) -> str:
        """The text at `path`, "" if there is none, with environment variables replaced as Maven does."""
        known = {f"env.{name}": value for name, value in self.environ.items()}
        known["user.home"] = str(next(iter(homes(self.environ)), ""))
        stated = (element.findtext(path) or "").strip()
        return re.sub(r"\$\{([^}]*)\}", lambda m: known.get(m[1], m[0]), stated)


def _at(address: str, origin: str, login: tuple[str, str] | None = None) -> Repository:
    """The repository at `address`, which may contain user and password."""
    try:
        parts = urllib.parse.urlsplit(address)
        good = parts.scheme in ("https", "http") and parts.hostname and "${" not in address
    except ValueError:
        good = None
    if not good:
        shown = re.sub(r"//[^/]*@", "//", address)
        raise SetupError(
            f"{origin} names {shown!r} as Maven repository, expected an https:// address",
            hint=f"name one in {VARIABLE}",
        )
    if parts.username:
        unquote = urllib.parse.unquote
        login = unquote(parts.username), unquote(parts.password or "")
    host = parts.netloc.rpartition("@")[2]
    url = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/"
    authorization = f"Basic {b64encode(':'.join(login).encode()).decode()}" if login else ""
    return Repository(url, origin, authorization)


def _default_root() -> str:
    """The address from which Spark resolves packages by default."""
    package = importlib.util.find_spec("pyspark")
    folder = Path(package.origin).parent / "jars" if package and package.origin else Path("jars")
    for jar in sorted(folder.glob("ivy-*.jar")):
        with zipfile.ZipFile(jar) as archive:
            found = _ROOT.search(archive.read(_RESOLVER))
        if found is not None:
            return found[1].decode()
    raise SetupError(
        f"no Maven repository is known: {folder} has no Ivy jar with a default one",
        hint=f"name one in {VARIABLE}",
    )
