"""Generation: folders, reuse, unfinished folders, and the command line with its exit statuses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pyarrow.parquet as pq
import pytest

from serde_lab.errors import SetupError, UsageError
from serde_lab.inputs.parts import MANIFEST, UNFINISHED, PartFolder
from tpch import generator as module
from tpch.__main__ import main
from tpch.generator import Generated, generate

pytestmark = pytest.mark.slow


def test_parts_hold_the_same_rows_as_one_file(tmp_path: Path) -> None:
    whole = generate("orders", 0.001, tmp_path / "a")
    parts = generate("orders", 0.001, tmp_path / "b", parts=3)
    one, three = (pq.read_table(made.manifest.files(made.folder)) for made in (whole, parts))
    assert one.equals(three)
    assert len(parts.manifest.parts) == 3
    assert whole.manifest.rows == parts.manifest.rows == 1500
    assert whole.manifest.notes == {"generator": module.generator_version()}


def test_a_finished_table_is_reused(tmp_path: Path) -> None:
    first = generate("nation", 1, tmp_path)
    again = generate("nation", 5, tmp_path)  # has 25 rows at any factor
    assert not first.reused
    assert again.reused
    assert first.manifest == again.manifest


def test_a_unfinished_table_is_done_again(tmp_path: Path) -> None:
    first = generate("region", 1, tmp_path)
    (first.folder / MANIFEST).unlink()
    (first.folder / UNFINISHED).write_text("{}")
    (first.folder / "_raw").mkdir()
    (first.folder / "_raw" / "region.1.parquet").write_text("torn")
    again = generate("region", 1, tmp_path)
    assert not again.reused
    assert again.manifest == first.manifest
    assert sorted(p.name for p in first.folder.iterdir()) == [MANIFEST, "part-00000.parquet"]


def test_two_processes_that_make_one_table_take_turns(tmp_path: Path) -> None:
    """The kernel's locks hold between threads, too."""
    barrier = Barrier(4)

    def make(_: int) -> Generated:
        barrier.wait()
        return generate("supplier", 0.001, tmp_path)

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(make, range(4)))
    assert sorted(one.reused for one in made) == [False, True, True, True]
    assert len({one.manifest.content for one in made}) == 1


def test_a_folder_whose_name_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="its name is not UTF-8"):
        generate("region", 1, tmp_path / os.fsdecode(b"r\xff"))


def test_what_standard_output_does_not_take(tmp_path: Path) -> None:
    """A reader that has closed the pipe is no error; a full disk is one, and the table is there."""
    command = [sys.executable, "-m", "tpch", "generate", "--tables=region", f"--out={tmp_path}"]
    buffered = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with Path("/dev/full").open("wb") as full:
        closed, out_of_space = (
            subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=buffered)
            for out in (writer, full)
        )
    os.close(writer)
    assert (closed.returncode, closed.stderr) == (0, "")
    assert out_of_space.returncode == 1
    assert out_of_space.stderr == "tpch: standard output: No space left on device\n"
    assert PartFolder(tmp_path / "region").manifest() is not None


def test_another_size_does_not_replace_what_is_there(tmp_path: Path) -> None:
    generate("supplier", 0.001, tmp_path)
    with pytest.raises(
        UsageError, match=r"scale_factor 0.001, parts 1, expected scale_factor 0.002"
    ):
        generate("supplier", 0.002, tmp_path)
    assert PartFolder(tmp_path / "supplier").manifest() is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["generate"], "the following arguments are required: --out"),
        (["generate", "--nope"], "--out"),
        (["generate", "--out", "x", "--nope"], "unrecognized arguments: --nope"),
        (["generate", "--out", "x", "-s", "big"], "invalid float value: 'big'"),
        (["generate", "--out", "x", "-s", "0"], "scale factor 0: expected a number above 0"),
        (["generate", "--out", "x", "-s", "nan"], "scale factor nan: expected a number above 0"),
        (["generate", "--out", "x", "--parts", "0"], "parts 0: expected a number from 1"),
        (["generate", "--out", "x", "--tables", "linitem"], "did you mean 'lineitem'?"),
    ],
)
def test_wrong_usage_is_one_sentence_and_status_2(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tpch: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x").write_text("")
    assert main(["generate", "--out", str(tmp_path / "x"), "--tables", "region"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["generate", "--help"])
    assert exited.value.code == 0
    out = capsys.readouterr().out
    for word in ("lineitem", "_manifest.json", "unfinished", "--parts", "examples:", "130"):
        assert word in out


def test_the_command_prints_what_it_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["generate", "--out", str(tmp_path), "--tables", "region,nation,region"]
    assert main(arguments) == 0
    first = capsys.readouterr()
    assert first.err == ""
    assert [line.split()[:3] for line in first.out.splitlines()[1:]] == [
        ["region", "5", "1"],
        ["nation", "25", "1"],
    ]
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("(generated earlier)") == 2


def test_a_missing_generator_is_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda *_, **__: None)
    assert main(["generate", "--out", str(tmp_path), "--tables", "region"]) == 1
    assert "tpchgen-cli is missing" in capsys.readouterr().err
    assert PartFolder(tmp_path / "region").is_unfinished()


def test_a_failing_generator_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "tpchgen-cli"
    program.write_text("#!/bin/sh\necho 'Error: no luck' >&2\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setattr(module, "_program", lambda: str(program))
    with pytest.raises(SetupError, match="ended with status 7: Error: no luck"):
        generate("region", 1, tmp_path / "out")


def test_ctrl_c_is_status_130_and_leaves_a_unfinished_folder(tmp_path: Path) -> None:
    # a generator that says that it runs, then waits to be killed
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    program = bin_folder / "tpchgen-cli"
    program.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.tmp\nmv {tmp_path}/pid.tmp {tmp_path}/pid\nexec sleep 6000\n"
    )
    program.chmod(0o755)
    script = (
        "import sys, tpch.generator as g\n"
        "from pathlib import Path\n"
        "sleep = g.time.sleep\n"
        "def slept(seconds):\n"
        f"    if Path({str(tmp_path / 'pid')!r}).exists():\n"
        "        print('both wait', flush=True)\n"
        "    sleep(seconds)\n"
        "g.time.sleep = slept\n"
        f"g._program = lambda: {str(program)!r}\n"
        "from tpch.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, "-c", script, "generate", "--out", str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*command, "--tables", "region"], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"both wait\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert (
        err.decode() == "tpch: interrupted; the next call generates the unfinished folder again\n"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert PartFolder(tmp_path / "out" / "region").is_unfinished()
    assert not generate("region", 1, tmp_path / "out").reused
