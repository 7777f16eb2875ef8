import shutil
import subprocess
from pathlib import Path

import pytest

import serde_lab
from serde_lab.measure.code_version import INSTRUMENTS, code_version, instruments, substance

PACKAGE = Path(serde_lab.__file__).parent
PHASES = Path("measure", "phases.py")


def copied(package: Path) -> None:
    """Copies of the files that hold instruments."""
    for part in {part.partition("#")[0] for parts in INSTRUMENTS.values() for part in parts}:
        (package / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / part, package / part)
    (package / "errors.py").write_text("")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package of the measuring modules."""
    package = tmp_path / "serde_lab"
    copied(package)
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "--no-gpg-sign", "-m", "one"],
    ):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return package


def test_words_are_no_substance() -> None:
    source = '''"""What this is."""

x = "a # b"  # why


def f(y: int) -> str:
    """Two lines
    of words.
    """
    # more words
    return f"{y!r} #"  # and more


class C:
    """Words."""

    z = """kept
# kept
"""
    """About z."""
'''
    assert substance(source).splitlines() == [
        'x = "a # b"',
        "def f(y: int) -> str:",
        '    return f"{y!r} #"',
        "class C:",
        '    z = """kept',
        "# kept",
        '"""',
    ]


def test_the_hash_changes_with_what_is_measured_and_not_with_words(checkout: Path) -> None:
    before = instruments("spark", checkout)
    text = (checkout / PHASES).read_text()
    (checkout / PHASES).write_text(f"# why\n{text}\n# and more\n")
    (checkout / "measure" / "metrics.py").write_text("x = 1\n")
    (checkout / "measure" / "another.py").write_text("")
    assert instruments("spark", checkout) == before
    (checkout / PHASES).write_text(f"{text}\nVERBS = 2\n")
    changed = instruments("spark", checkout)
    assert {name for name in changed if changed[name] != before[name]} == {"split of slot time"}


def test_a_checkout_has_a_commit_and_may_be_dirty(checkout: Path) -> None:
    clean = code_version(package=checkout)
    assert len(clean["git_commit"]) == 40
    assert clean["git_dirty"] is False
    assert clean["instruments"] == instruments("spark", checkout)
    (checkout / "measure" / "new.py").write_text("x = 1\n")
    assert len(set(clean["instruments"].values())) == len(clean["instruments"])
    dirty = code_version(package=checkout)
    assert dirty["git_dirty"] is True
    assert dirty["git_commit"] == clean["git_commit"]


def test_a_package_inside_another_projects_checkout_has_no_commit(checkout: Path) -> None:
    installed = checkout.parent / ".venv" / "serde_lab"
    copied(installed)
    version = code_version(package=installed)
    assert (version["git_commit"], version["git_dirty"]) == (None, None)


def test_without_git_there_is_no_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert code_version(package=checkout)["git_commit"] is None


def test_this_package_has_a_hash_of_its_own() -> None:
    version = code_version()
    assert len(version["measuring"]) == 16
    assert version["measuring"] != code_version("none")["measuring"]
    assert version["instruments"] == instruments("spark")
