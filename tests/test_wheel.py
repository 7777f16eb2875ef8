"""The wheel holds what it should, and works where the checkout is out of sight."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.short_lived import OWN_DAEMON

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (found,) = folder.glob("serde_lab-*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_it_holds_every_file_of_the_packages(names: set[str]) -> None:
    tracked = ["git", "ls-files", "serde_lab", "tpch", "scenarios"]
    listed = subprocess.run(tracked, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    files = [file for file in listed.stdout.splitlines() if (REPOSITORY / file).exists()]
    assert any(file.endswith(".properties") for file in files)
    wanted = {
        f"serde_lab/_{file}" if file.startswith("scenarios/") else file
        for file in files
        if not Path(file).name.startswith(".")
    }
    assert wanted - names == set()
    assert {"serde_lab/_scenarios/smoke.toml", "tpch/generator.py", "serde_lab/py.typed"} <= names


def test_it_holds_nothing_else(names: set[str]) -> None:
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"serde_lab", "tpch"}
    assert [name for name in names if "test" in name.split("/") or "/tests/" in name] == []
    assert [
        name for name in names if name.startswith("serde_lab/_scenarios/") and ".py" in name
    ] == []


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment's folder of commands; it sees today's dependencies and not the checkout."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*install, "--no-index", "--quiet", str(wheel)], check=True, capture_output=True)
    (packages,) = home.glob("lib/python*/site-packages")
    # a path in a .pth is searched, but the .pth files in it are not: an editable install stays unseen
    dependencies = Path(sysconfig.get_path("purelib"))
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    # but one, by which setuptools gives Python 3.12 the distutils that pyspark imports
    shutil.copy(dependencies / "distutils-precedence.pth", packages)
    return home / "bin"


def environment() -> dict[str, str]:
    hidden = ("PYTHONPATH", "SERDE_LAB_CACHE", "XDG_CACHE_HOME", "VIRTUAL_ENV")
    kept = {key: value for key, value in os.environ.items() if key not in hidden}
    # programs of dependencies, such as tpchgen-cli, are where this environment has them
    return kept | {"PATH": os.pathsep.join([sysconfig.get_path("scripts"), kept["PATH"]])}


def test_it_is_the_installed_package_that_runs(installed: Path, tmp_path: Path) -> None:
    code = "import serde_lab, tpch; print(serde_lab.__file__, tpch.__file__)"
    done = subprocess.run(
        [installed / "python", "-c", code],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(Path(file).is_relative_to(installed.parent) for file in done.stdout.split())


@pytest.mark.spark
def test_it_runs_smoke_from_another_folder(installed: Path, tmp_path: Path) -> None:
    command = [installed / "serde-lab", "run", "smoke", "--rounds", "1", "--strategy", "arrow"]
    for change in ("measure.warmup=0", "data.scale_factor=0.001"):
        command += ["--set", change]
    hidden = environment() | OWN_DAEMON
    done = subprocess.run(
        command, cwd=tmp_path, env=hidden, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("results/smoke/*/run.json"))
    (report,) = tmp_path.glob("reports/*.html")
    assert str(report) in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"results", "reports", ".cache"}
