import subprocess
from pathlib import Path

import pytest

from serde_lab.measure.code_version import code_version, measuring_hash, substance


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package of one measuring module."""
    package = tmp_path / "serde_lab"
    (package / "measure").mkdir(parents=True)
    (package / "errors.py").write_text("")
    (package / "measure" / "phases.py").write_text("VERBS = 1\n")
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
    folder = checkout / "measure"
    before = measuring_hash(folder)
    (folder / "phases.py").write_text('"""Words."""\n\nVERBS = 1  # why\n')
    (folder / "environment.py").write_text("x = 1\n")
    assert measuring_hash(folder) == before
    (folder / "phases.py").write_text("VERBS = 2\n")
    changed = measuring_hash(folder)
    assert changed != before
    (folder / "another.py").write_text("")
    assert measuring_hash(folder) not in (before, changed)


def test_a_checkout_has_a_commit_and_may_be_dirty(checkout: Path) -> None:
    clean = code_version(checkout)
    assert len(clean["git_commit"]) == 40
    assert clean["git_dirty"] is False
    assert clean["measuring"] == measuring_hash(checkout / "measure")
    (checkout / "measure" / "new.py").write_text("x = 1\n")
    dirty = code_version(checkout)
    assert dirty["git_dirty"] is True
    assert dirty["git_commit"] == clean["git_commit"]


def test_a_package_inside_another_projects_checkout_has_no_commit(checkout: Path) -> None:
    installed = checkout.parent / ".venv" / "serde_lab"
    (installed / "measure").mkdir(parents=True)
    (installed / "errors.py").write_text("")
    version = code_version(installed)
    assert (version["git_commit"], version["git_dirty"]) == (None, None)


def test_without_git_there_is_no_commit(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert code_version(checkout)["git_commit"] is None


def test_this_package_has_a_hash_of_its_own() -> None:
    assert len(code_version()["measuring"]) == 16
