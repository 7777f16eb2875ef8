"""CPU time and memory of process trees, against processes that spend known amounts of both."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serde_lab.measure.process_tree import tree_cpu_s, tree_use

_SPIN = "import time\nwhile time.process_time() < {s}: pass\n"
_MIB = 1 << 20


def _python(code: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code]


def test_threads_and_running_children_count() -> None:
    with tree_use() as measured:
        child = subprocess.Popen(_python(_SPIN.format(s=0.4) + "input()"), stdin=subprocess.PIPE)
        while (tree_cpu_s(child.pid) or 0) < 0.35:
            time.sleep(0.01)
    child.communicate(b"\n")
    assert measured.use is not None
    assert measured.use.cpu_s >= 0.35


def test_children_that_ended_count_and_so_do_theirs() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {_SPIN.format(s=0.3)!r}])"
    with tree_use() as measured:
        subprocess.run(_python(nested), check=True)
    assert measured.use is not None
    assert measured.use.cpu_s >= 0.28


_ORPHAN = f"""
import os, subprocess, sys, time
from serde_lab.measure.process_tree import tree_use
with tree_use() as measured:
    spin = [sys.executable, "-S", "-c", {_SPIN.format(s=0.3)!r}]
    parent = f"import subprocess; subprocess.Popen({{spin!r}})"
    subprocess.run([sys.executable, "-S", "-c", parent], check=True)
    os.waitpid(-1, 0)
print(measured.use.cpu_s)
"""


def test_an_orphan_stays_in_the_tree() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ORPHAN], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) >= 0.28


_FORKS = """
import os, sys, time
held = bytearray(os.urandom(64 << 20))
for _ in range(3):
    if os.fork() == 0:
        sys.stdin.readline()
        os._exit(0)
print("ready", flush=True)
sys.stdin.readline()
os._exit(0)
"""


def test_shared_pages_count_once() -> None:
    child = subprocess.Popen(
        _python(_FORKS), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    with tree_use(child.pid) as measured:
        time.sleep(0.15)
    child.communicate("\n" * 4)
    assert measured.use is not None
    assert 64 * _MIB <= measured.use.peak_bytes <= 200 * _MIB


def test_memory_that_was_returned_before_the_end_counts() -> None:
    with tree_use() as measured:
        held = os.urandom(200 * _MIB)
        time.sleep(0.25)
        del held
    with tree_use() as after:
        pass
    assert measured.use is not None
    assert after.use is not None
    assert measured.use.peak_bytes >= after.use.peak_bytes + 150 * _MIB


def process(folder: Path, pid: int, parent: int, ticks: int, of_reaped: int) -> None:
    (folder / str(pid)).mkdir(exist_ok=True)
    fields = f"S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 {of_reaped} 0 20 0 1 0 5 0 0"
    # replaced whole, as the kernel does: the sampler's thread reads at any moment
    for name, text in (("stat", f"{pid} (name) {fields}"), ("statm", "10 8 3 0 0 0 0")):
        (folder / "new").write_text(text)
        (folder / "new").replace(folder / str(pid) / name)


@pytest.mark.parametrize(
    ("of_reaped", "expected"),
    [
        # the child, and what it had waited for, ended with 100 + 30 ticks more than it began with
        (1_000 + 500 + 20 + 130, 7 + 130),
        # nobody waited for it: what it used in the meantime is lost, and what it had used is not taken off
        (1_000, 7),
    ],
)
def test_a_process_that_began_before_and_ended_meanwhile(
    of_reaped: int, expected: int, tmp_path: Path
) -> None:
    process(tmp_path, 7, 1, 50, 1_000)
    process(tmp_path, 8, 7, 500, 0)
    process(tmp_path, 9, 8, 20, 0)
    with tree_use(7, tmp_path) as measured:
        for ended in (8, 9):
            shutil.rmtree(tmp_path / str(ended))
        process(tmp_path, 7, 1, 57, of_reaped)
    assert measured.use is not None
    assert measured.use.cpu_s == expected / os.sysconf("SC_CLK_TCK")


def test_cpu_of_others_than_root_and_jvm_is_known_apart(tmp_path: Path) -> None:
    for pid, parent in ((7, 1), (8, 7), (9, 8), (10, 8)):
        process(tmp_path, pid, parent, 100, 0)
    with tree_use(7, tmp_path, jvm=8) as measured:
        process(tmp_path, 7, 1, 101, 0)
        # the worker 10 ended, with 200 ticks in all, of which 100 were used before
        process(tmp_path, 8, 7, 120, 200)
        shutil.rmtree(tmp_path / "10")
        process(tmp_path, 9, 8, 105, 3)
    assert measured.use is not None
    per_s = os.sysconf("SC_CLK_TCK")
    assert measured.use.cpu_s == (1 + 20 + 100 + 5 + 3) / per_s
    assert measured.use.worker_cpu_s == (100 + 5 + 3) / per_s


_LOOSE = f"""
import os, subprocess, sys, time
from serde_lab.measure.process_tree import adopt_orphans, end_processes, started_by
adopt_orphans(True)
spin = [sys.executable, "-S", "-c", {_SPIN.format(s=60)!r}]
# it must not hold the pipes of the process that starts it, which would be waited for
apart = "start_new_session=True, stdout=s.DEVNULL, stderr=s.DEVNULL"
parent = f"import subprocess as s; print(s.Popen({{spin!r}}, {{apart}}).pid)"
named = {{**os.environ, "OF_A_CELL": "1"}}
made = subprocess.run([sys.executable, "-S", "-c", parent], env=named, text=True, capture_output=True)
kept = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
found = started_by((), "OF_A_CELL")
assert found == {{int(made.stdout)}}, (found, made)
end_processes((), found)
assert not os.path.exists(f"/proc/{{int(made.stdout)}}")
assert kept.poll() is None
kept.communicate(b"\\n")
"""


def test_a_process_that_was_cut_loose_is_found_and_ended() -> None:
    subprocess.run([sys.executable, "-c", _LOOSE], check=True)


def test_without_proc_nothing_is_measured(tmp_path: Path) -> None:
    with tree_use(proc=tmp_path / "proc") as measured:
        pass
    assert measured.use is None
    assert tree_cpu_s(1, tmp_path) is None


def test_a_name_may_hold_blanks_and_parentheses(tmp_path: Path) -> None:
    after = "S 1 1 1 0 -1 0 0 0 0 0 70 30 11 9 20 0 1 0 5 0 0"
    for pid, parent in (("7", "1"), ("8", "7")):
        folder = tmp_path / pid
        folder.mkdir()
        stat = f"{pid} (a) b (c) {after.replace('S 1', f'S {parent}', 1)}"
        (folder / "stat").write_text(stat)
        (folder / "statm").write_text("10 8 3 0 0 0 0")
    assert tree_cpu_s(7, tmp_path) == 2 * (70 + 30 + 11 + 9) / os.sysconf("SC_CLK_TCK")
