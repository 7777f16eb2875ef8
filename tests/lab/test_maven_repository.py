"""Which Maven repository is asked: the variable, Maven's settings, the default of Spark's resolver."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from serde_lab.errors import SetupError
from serde_lab.lab.jars import repository as maven_repository
from serde_lab.lab.jars.repository import homes, local_repositories, repository
from tests.lab.jar_server import no_other_home

REPOSITORY = Path(__file__).parents[2]
MIRROR = "<mirror><id>m</id><mirrorOf>{}</mirrorOf><url>https://mirror.example/maven</url></mirror>"
PROFILE = """
<profiles><profile><id>work</id>{}
  <repositories>
    <repository><id>other</id><url>https://other.example</url></repository>
    <repository><id>central</id><url>https://central.example/</url></repository>
  </repositories>
</profile></profiles>
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only home that is looked into; the default of Spark's resolver has a name of its own."""
    no_other_home(monkeypatch, tmp_path)
    monkeypatch.setattr(maven_repository, "_default_root", lambda: "https://default.example/")
    return tmp_path


def settings(folder: Path, *content: str) -> Path:
    file = folder / "settings.xml"
    file.parent.mkdir(parents=True, exist_ok=True)
    namespace = "http://maven.apache.org/SETTINGS/1.2.0"
    file.write_text(f'<settings xmlns="{namespace}">{"".join(content)}</settings>')
    return file


def test_the_variable_wins(home: Path) -> None:
    settings(home / ".m2", f"<mirrors>{MIRROR.format('*')}</mirrors>")
    found = repository({maven_repository.VARIABLE: " https://named.example/a "})
    assert (found.url, found.origin) == ("https://named.example/a/", maven_repository.VARIABLE)


@pytest.mark.parametrize(
    "stated", ["named.example", "ftp://named.example", "https://", "https://[::1", "file:///maven"]
)
def test_what_is_no_address_is_refused(home: Path, stated: str) -> None:
    with pytest.raises(SetupError, match="as Maven repository, expected an https:// address"):
        repository({maven_repository.VARIABLE: stated})


def test_a_password_is_shown_nowhere(home: Path) -> None:
    found = repository({maven_repository.VARIABLE: "https://me:secret@named.example:8443/"})
    assert found.url == "https://named.example:8443/"
    assert found.authorization.startswith("Basic ")
    assert found.authorization not in repr(found)
    with pytest.raises(SetupError) as refused:
        repository({maven_repository.VARIABLE: "ftp://me:secret@named.example"})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("of", ["central", "*", "external:*", "a, central", "*,!a"])
def test_a_mirror_of_central_is_used(home: Path, of: str) -> None:
    file = settings(home / ".m2", f"<mirrors>{MIRROR.format(of)}</mirrors>", PROFILE.format(""))
    found = repository({})
    assert (found.url, found.origin) == ("https://mirror.example/maven/", str(file))


@pytest.mark.parametrize(
    "of",
    ["a", "*,!central", "external:http:*", "central</mirrorOf><blocked>true</blocked><mirrorOf>"],
)
def test_another_mirror_is_not(home: Path, of: str) -> None:
    settings(home / ".m2", f"<mirrors>{MIRROR.format(of)}</mirrors>")
    assert repository({}).url == "https://default.example/"


@pytest.mark.parametrize(
    ("inside", "beside", "url"),
    [
        ("", "", "https://default.example/"),
        ("", "<activeProfiles><activeProfile>work</activeProfile></activeProfiles>", "https://central.example/"),
        ("<activation><activeByDefault>true</activeByDefault></activation>", "", "https://central.example/"),
    ],
)  # fmt: skip
def test_the_central_of_an_active_profile_is_used(
    home: Path, inside: str, beside: str, url: str
) -> None:
    settings(home / ".m2", PROFILE.format(inside), beside)
    assert repository({}).url == url


@pytest.mark.parametrize(
    ("password", "sent"), [("${env.TOKEN}", "Basic bWU6dG9rZW4="), ("{jSMOWnoPFgsHVpMvz5VrIt}", "")]
)
def test_the_login_of_the_mirrors_server_is_sent(home: Path, password: str, sent: str) -> None:
    server = f"<server><id>m</id><username>me</username><password>{password}</password></server>"
    mirrors = f"<mirrors>{MIRROR.format('*')}</mirrors>"
    settings(home / ".m2", mirrors, f"<servers>{server}</servers>")
    assert repository({"TOKEN": "token"}).authorization == sent


def test_a_property_that_nothing_sets_is_refused(home: Path) -> None:
    mirror = MIRROR.format("*").replace("mirror.example", "${company.host}")
    file = settings(home / ".m2", f"<mirrors>{mirror}</mirrors>")
    with pytest.raises(SetupError, match=rf"{file} names .*\$\{{company\.host\}}"):
        repository({})


def test_settings_of_the_installation_come_last(home: Path, tmp_path: Path) -> None:
    environ = {"MAVEN_HOME": str(tmp_path / "maven")}
    settings(tmp_path / "maven" / "conf", f"<mirrors>{MIRROR.format('*')}</mirrors>")
    assert repository(environ).url == "https://mirror.example/maven/"
    settings(home / ".m2", PROFILE.format(""), "<activeProfiles><p>work</p></activeProfiles>")
    assert repository(environ).url == "https://central.example/"


def test_damaged_settings_are_named(home: Path) -> None:
    file = settings(home / ".m2", "<mirrors>")
    with pytest.raises(SetupError, match=f"Maven's settings {file} cannot be read: mismatched tag"):
        repository({})
    assert next(local_repositories({})) == home / ".m2" / "repository"


def test_a_user_without_an_account_has_the_home_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert homes({"HOME": "/a"}) == [Path("/a")]
    assert homes({}) == []


def test_the_default_is_read_from_the_resolver_that_pyspark_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_other_home(monkeypatch, tmp_path)
    found = repository({})
    assert found.origin == "the default of Spark's resolver"
    assert found.url.startswith("https://")
    # nor is its host written anywhere in the project
    host = urlsplit(found.url).hostname
    command = ["git", "grep", "--untracked", "--files-with-matches", str(host)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr


def test_without_a_resolver_the_variable_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_other_home(monkeypatch, tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        SetupError, match=r"no Maven repository is known: .*\(name one in SERDE_LAB_"
    ):
        repository({})
