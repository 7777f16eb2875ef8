"""The example plug-in is installed for the tests of this folder, and gone after them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from .installation import install


@pytest.fixture(scope="package", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The folder in which the example is installed."""
    folder = str(install(tmp_path_factory.mktemp("site") / "plugin"))
    sys.path.insert(0, folder)
    yield folder
    sys.path.remove(folder)
    sys.modules.pop("json_lines", None)
