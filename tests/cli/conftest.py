"""What tests of the command line share: the plug-in of cheats, a small scenario, and a way to call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from serde_lab.cli.app import main
from tests.lab.plugin_folder import install
from tests.lab.small_scenario import NAME, content, source, toml
from tests.sabotage import cheats


@dataclass(frozen=True)
class Said:
    """What a command returned and wrote."""

    status: int
    out: str
    messages: str

    @property
    def sentence(self) -> str:
        """The one line that says why it failed."""
        (line,) = [one for one in self.messages.splitlines() if one.startswith("serde-lab:")]
        return line


Call = Callable[..., Said]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    """`serde-lab` with arguments, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        assert "Traceback" not in written.err + written.out
        return Said(status, written.out, written.err)

    return run


@pytest.fixture
def scenario_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes the small scenario with its data, changed as asked; returns the file."""

    def write(arms: list[Any] | None = None, change: Any = None, **kwargs: Any) -> Path:
        table = kwargs.pop("rows", None)
        document = content(source(tmp_path / "own", table), arms or ["arrow"], **kwargs)
        if change is not None:
            change(document)
        file = tmp_path / f"{NAME}.toml"
        file.write_text(toml(document))
        return file

    return write


@pytest.fixture(scope="session")
def _cheats_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    named = [(name, found.__name__) for name, found in cheats.ALL.items()]
    module = Path(cheats.__file__)
    return str(install(tmp_path_factory.mktemp("cheats-of-cli") / "site", module, named))


@pytest.fixture
def cheating(_cheats_folder: str) -> Iterator[None]:
    """Strategies that cheat can be named in scenarios."""
    sys.path.insert(0, _cheats_folder)
    yield
    sys.path.remove(_cheats_folder)
    sys.modules.pop("cheats", None)
