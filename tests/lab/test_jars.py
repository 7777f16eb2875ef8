"""Pinned jars: where they are looked for, how they are fetched, and what is refused."""

from __future__ import annotations

import datetime
import ipaddress
import os
import resource
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from serde_lab.errors import SetupError
from serde_lab.lab.jars import repository
from serde_lab.lab.jars.manifest import (
    HUDI,
    FoundJar,
    fetch_jar,
    fetch_jars,
    find_jar,
    find_jars,
    manifest,
)
from tests.lab.jar_server import CONTENT, JAR, JarServer, no_other_home, served

IN_MAVEN = ".m2/repository/org/example/small/small-bundle_2.12/1.0/small-bundle_2.12-1.0.jar"
IN_IVY = (
    ".ivy2/cache/org.example.small/small-bundle_2.12/jars/small-bundle_2.12-1.0.jar",
    ".ivy2/jars/org.example.small_small-bundle_2.12-1.0.jar",
    ".ivy2.5.2/jars/org.example.small_small-bundle_2.12-1.0.jar",
)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "_PAUSE_S", 0)


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with a home and a cache that hold nothing."""
    home = tmp_path / "home"
    home.mkdir()
    no_other_home(monkeypatch, home)
    return {"HOME": str(home), "SERDE_LAB_CACHE": str(tmp_path / "cache")}


@pytest.fixture
def server(environ: dict[str, str]) -> Iterator[JarServer]:
    with served() as one:
        environ["SERDE_LAB_MAVEN_REPOSITORY"] = f"{one.url}/maven"
        yield one


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def cached(environ: dict[str, str]) -> Path:
    return Path(environ["SERDE_LAB_CACHE"], "jars", JAR.file_name)


def partly(environ: dict[str, str]) -> Path:
    return cached(environ).with_name(f"{JAR.file_name}.part")


def found(stated: str, environ: dict[str, str]) -> FoundJar:
    jar = find_jar(JAR, stated, environ)
    assert jar is not None
    return jar


def test_every_jar_of_the_manifest_is_pinned() -> None:
    assert manifest()["hudi"] == (HUDI,)
    pinned = [jar for jars in manifest().values() for jar in jars]
    for jar in pinned:
        assert len(bytes.fromhex(jar.sha256)) == 32
        assert jar.size_bytes > 0
        assert jar.variable.startswith("SERDE_LAB_") == (jar is pinned[0])
    # one folder holds all
    assert len({jar.file_name for jar in pinned}) == len(pinned)


def test_a_set_of_jars_is_fetched_where_it_is_missing(
    server: JarServer, environ: dict[str, str]
) -> None:
    jars = [replace(JAR, title="a set", version=f"1.{n}", variable="") for n in range(3)]
    put(cached(environ).with_name(jars[1].file_name))
    assert find_jars(jars, environ)[1] == [jars[0], jars[2]]
    seen: list[tuple[str, int, int]] = []
    paths = fetch_jars(jars, environ, lambda *said: seen.append(said))
    assert [path.name for path in paths] == [jar.file_name for jar in jars]
    assert find_jars(jars, environ) == (paths, [])
    assert len(server.asked) == 2
    assert {(task, total) for task, _, total in seen} == {("a set", 2 * JAR.size_bytes)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1][1] == 2 * JAR.size_bytes
    server.status = 404
    with pytest.raises(SetupError, match="a set cannot be fetched") as caught:
        fetch_jars([replace(jars[0], version="2")], environ)
    assert "small-bundle_2.12-2.jar" in str(caught.value)
    assert "or name the file in" not in str(caught.value)


def test_places_are_searched_in_order(environ: dict[str, str], tmp_path: Path) -> None:
    home = Path(environ["HOME"])
    assert find_jar(JAR, environ=environ) is None
    for place in reversed(IN_IVY):
        path = put(home / place)
        assert found("", environ) == FoundJar(path, "Ivy's cache")
    path = put(home / IN_MAVEN)
    assert found("", environ) == FoundJar(path, "Maven's local repository")
    path = put(cached(environ))
    assert found("", environ) == FoundJar(path, "the cache")
    named = put(tmp_path / "named.jar")
    environ[JAR.variable] = str(named)
    assert found("", environ) == FoundJar(named, JAR.variable)
    given = put(tmp_path / "given.jar")
    assert found(str(given), environ) == FoundJar(given, "--hudi-jar")


def test_the_accounts_own_home_is_searched_as_well_as_home(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path / "account" / IN_MAVEN)
    monkeypatch.undo()
    account = type("Account", (), {"pw_dir": str(tmp_path / "account")})
    monkeypatch.setattr("pwd.getpwuid", lambda user: account)
    assert found("", environ).path == path
    del environ["HOME"]
    assert found("", environ).path == path


def test_the_local_repository_of_mavens_settings_is_searched(
    environ: dict[str, str], tmp_path: Path
) -> None:
    stated = "<localRepository>${env.BIG_DISK}/maven</localRepository>"
    put(Path(environ["HOME"], ".m2/settings.xml"), f"<settings>{stated}</settings>".encode())
    environ["BIG_DISK"] = str(tmp_path)
    path = put(tmp_path / "maven" / JAR.repository_path)
    assert found("", environ).path == path


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"?"])
def test_a_file_with_another_sum_is_passed_over(environ: dict[str, str], content: bytes) -> None:
    put(cached(environ), content)
    put(Path(environ["HOME"], IN_MAVEN), content)
    assert find_jar(JAR, environ=environ) is None
    right = put(Path(environ["HOME"], IN_IVY[0]))
    assert found("", environ).path == right


def test_a_named_file_is_the_users_choice_and_the_difference_is_said(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ[JAR.variable] = str(put(tmp_path / "own.jar", b"PK"))
    jar = found("", environ)
    assert jar.path == tmp_path / "own.jar"
    assert jar.note == (
        f"{tmp_path}/own.jar (SERDE_LAB_SMALL_JAR) is not the published "
        "org.example.small:small-bundle_2.12:1.0: it has 2 bytes, expected 4,096,000"
    )


def test_a_named_file_that_is_not_there_is_refused(environ: dict[str, str], tmp_path: Path) -> None:
    put(cached(environ))
    missing = str(tmp_path / "missing.jar")
    with pytest.raises(SetupError, match=r"--hudi-jar names .*missing\.jar, which is not a file"):
        find_jar(JAR, missing, environ)
    with pytest.raises(SetupError, match="SERDE_LAB_SMALL_JAR names"):
        find_jar(JAR, environ={**environ, JAR.variable: missing})


def test_what_is_not_here_is_fetched_once(environ: dict[str, str], server: JarServer) -> None:
    seen: list[tuple[str, int, int]] = []
    jar = fetch_jar(JAR, environ=environ, progress=lambda *said: seen.append(said))
    assert jar == FoundJar(cached(environ), f"fetched from {server.url}/maven/")
    assert cached(environ).read_bytes() == CONTENT
    assert not partly(environ).exists()
    assert [path for path, _ in server.asked] == [f"/maven/{JAR.repository_path}"]
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    assert seen[-1] == ("small-bundle_2.12 1.0", len(CONTENT), len(CONTENT))
    assert fetch_jar(JAR, environ=environ) == FoundJar(cached(environ), "the cache")
    assert len(server.asked) == 1


def test_a_connection_that_breaks_is_taken_up_where_it_broke(
    environ: dict[str, str], server: JarServer
) -> None:
    server.cuts = [1_000_000, 2_000_000]
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT
    assert server.asked_ranges() == [None, "bytes=1000000-", "bytes=3000000-"]


def test_a_fetch_that_failed_is_continued_by_the_next_one(
    environ: dict[str, str], server: JarServer
) -> None:
    server.cuts = [1000] * 4
    with pytest.raises(SetupError, match=r"the connection ended after 4,000 of 4,096,000 bytes"):
        fetch_jar(JAR, environ=environ)
    assert partly(environ).read_bytes() == CONTENT[:4000]
    assert not cached(environ).exists()
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT
    assert server.asked_ranges()[-1] == "bytes=4000-"


def test_a_server_without_ranges_sends_the_whole_file_again(
    environ: dict[str, str], server: JarServer
) -> None:
    server.ranges, server.cuts = False, [1000]
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT


def test_a_whole_file_that_was_never_checked_is_not_fetched_again(
    environ: dict[str, str], server: JarServer
) -> None:
    put(partly(environ))
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT
    assert server.asked == []


def test_a_part_that_is_too_long_is_forgotten(environ: dict[str, str], server: JarServer) -> None:
    put(partly(environ), CONTENT + b"more")
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT


def test_another_sum_is_refused_and_nothing_is_kept(
    environ: dict[str, str], server: JarServer
) -> None:
    server.content = CONTENT[:-1] + b"?"
    with pytest.raises(SetupError) as refused:
        fetch_jar(JAR, environ=environ)
    said = str(refused.value)
    assert "is not the pinned file of a small jar: its SHA-256 is " in said
    assert JAR.sha256 in said
    by_hand = f"download {server.url}/maven/{JAR.repository_path} to {cached(environ)}"
    assert f"{by_hand}, or name the file in SERDE_LAB_SMALL_JAR" in said
    assert not partly(environ).exists()
    assert not cached(environ).exists()
    server.content = CONTENT
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [b"<html>log in</html>", CONTENT + b"more"])
def test_a_file_of_another_size_is_refused_before_it_is_fetched(
    environ: dict[str, str], server: JarServer, content: bytes
) -> None:
    server.content = content
    with pytest.raises(
        SetupError, match=f"the file has {len(content):,} bytes on the server, expected 4,096,000"
    ):
        fetch_jar(JAR, environ=environ)
    assert len(server.asked) == 1
    put(partly(environ), CONTENT[:100_000])
    with pytest.raises(
        SetupError, match=f"the file has {len(content):,} bytes on the server, expected 4,096,000"
    ):
        fetch_jar(JAR, environ=environ)


@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (401, 1), (503, 4)])
def test_what_the_server_answers_is_said(
    environ: dict[str, str], server: JarServer, status: int, attempts: int
) -> None:
    server.status = status
    with pytest.raises(SetupError, match=f"the server answers {status} .* to "):
        fetch_jar(JAR, environ=environ)
    assert len(server.asked) == attempts


def test_a_server_that_is_not_there_is_said(environ: dict[str, str], server: JarServer) -> None:
    environ["SERDE_LAB_MAVEN_REPOSITORY"] = "http://127.0.0.1:1/"
    with pytest.raises(SetupError, match=r"\(SERDE_LAB_MAVEN_REPOSITORY\): Connection refused"):
        fetch_jar(JAR, environ=environ)


def test_user_and_password_of_the_address_are_sent_and_never_shown(
    environ: dict[str, str], server: JarServer
) -> None:
    at = server.url.replace("://", "://me:p%40ss@")
    environ["SERDE_LAB_MAVEN_REPOSITORY"] = at
    server.status = 403
    with pytest.raises(SetupError) as refused:
        fetch_jar(JAR, environ=environ)
    assert "p%40ss" not in str(refused.value)
    assert server.asked[0][1]["Authorization"] == "Basic bWU6cEBzcw=="


def test_a_proxy_of_the_environment_is_used(
    environ: dict[str, str], server: JarServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    environ["SERDE_LAB_MAVEN_REPOSITORY"] = "http://repository.invalid/maven"
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT
    asked = f"http://repository.invalid/maven/{JAR.repository_path}"
    assert [path for path, _ in server.asked] == [asked]


def test_two_at_once_fetch_once(environ: dict[str, str], server: JarServer) -> None:
    server.may_answer.clear()
    jars: list[FoundJar] = []
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        server.may_answer.set()

    def fetch() -> None:
        jars.append(fetch_jar(JAR, environ=environ, say=say))

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [jar.path for jar in jars] == [cached(environ)] * 2
    assert said == ["waiting for another process that is fetching a small jar"]
    assert len(server.asked) == 1


def test_a_cache_that_cannot_be_written_is_said(
    environ: dict[str, str], server: JarServer, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(SetupError, match=r"cache/jars cannot be written: Not a directory"):
        fetch_jar(JAR, environ=environ)


def test_a_disk_that_takes_no_more_is_said_and_what_it_took_is_kept(
    environ: dict[str, str], server: JarServer
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, limits[1]))
    try:
        with pytest.raises(SetupError, match=r"\.part cannot be written: File too large"):
            fetch_jar(JAR, environ=environ)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert partly(environ).read_bytes() == CONTENT[:3_000_000]
    assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine that no store knows, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a company's proxy")])
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "certificate.pem"
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(private + made.public_bytes(pem))
    return file


@pytest.mark.parametrize("variable", repository.CERTIFICATES)
def test_certificates_come_from_the_variables(
    environ: dict[str, str], certificate: Path, variable: str
) -> None:
    with served(certificate) as secure:
        environ["SERDE_LAB_MAVEN_REPOSITORY"] = secure.url
        with pytest.raises(
            SetupError,
            match=r"certificate is refused: .*\(name a file with your company's certificates in SSL_CERT",
        ):
            fetch_jar(JAR, environ=environ)
        environ[variable] = str(certificate)
        assert fetch_jar(JAR, environ=environ).path.read_bytes() == CONTENT


@pytest.mark.parametrize("content", [None, b"no certificate"])
def test_certificates_that_cannot_be_read_are_named(
    environ: dict[str, str], tmp_path: Path, server: JarServer, content: bytes | None
) -> None:
    if content is not None:
        put(tmp_path / "company.pem", content)
    environ["SSL_CERT_FILE"] = str(tmp_path / "company.pem")
    with pytest.raises(
        SetupError, match=r"SSL_CERT_FILE names .*company\.pem, which cannot be read"
    ):
        fetch_jar(JAR, environ=environ)


def test_a_jar_that_nobody_may_read_differs(environ: dict[str, str]) -> None:
    put(cached(environ))
    cached(environ).chmod(0)
    readable = os.access(cached(environ), os.R_OK)
    assert (find_jar(JAR, environ=environ) is not None) == readable
    assert find_jar(replace(JAR, sha256="0" * 64), environ=environ) is None
