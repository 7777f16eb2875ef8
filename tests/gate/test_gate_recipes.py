"""The recipes for CI: they parse, ask only for what the command line has, and keep its status."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import serde_lab.gate
from serde_lab.cli.app import app

RECIPES = Path(serde_lab.gate.__file__).parent / "recipes"
GITHUB, GITLAB = RECIPES / "github-actions.yml", RECIPES / "gitlab-ci.yml"
FILES = [GITHUB, GITLAB]


def scripts(file: Path) -> list[str]:
    """Every shell script of a recipe."""
    document = yaml.safe_load(file.read_text())
    if file == GITHUB:
        return [s["run"] for j in document["jobs"].values() for s in j["steps"] if "run" in s]
    jobs = [job for job in document.values() if isinstance(job, dict)]
    return [
        line for job in jobs for key in ("before_script", "script") for line in job.get(key, [])
    ]


def commands(file: Path) -> list[list[str]]:
    """The words after `python -m serde_lab`, line continuations joined."""
    joined = [script.replace("\\\n", " ") for script in scripts(file)]
    return [
        re.split(r"\s+", found.strip())
        for script in joined
        for found in re.findall(r"-m serde_lab ([^|>\n]+)", script)
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_recipes_ask_only_for_what_the_command_line_has(file: Path) -> None:
    verbs: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    found = commands(file)
    assert {words[0] for words in found} == {"ab", "gate"}
    for words in found:
        if words[0] == "ab" and "ab" not in verbs:
            continue  # the recipe is ahead of the verb
        known = {name for option in verbs[words[0]].params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_a_pipe_does_not_swallow_the_status() -> None:
    for script in scripts(GITHUB):
        assert "|" not in script or script.startswith("set -o pipefail\n")
    assert not any("|" in script for script in scripts(GITLAB))


def test_nothing_of_a_pull_request_is_pasted_into_a_shell() -> None:
    assert not any("${{" in script for script in scripts(GITHUB))


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="actionlint is not installed")
def test_actionlint_finds_nothing() -> None:
    done = subprocess.run(
        ["actionlint", "-no-color", str(GITHUB)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
