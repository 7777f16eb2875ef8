"""A stream of many micro-batches that is killed again and again, and goes on from its checkpoint each time.

`make faults` runs the long form: `python -m tests.faults.killed_stream`. It goes on where it stopped,
and puts a line for each kill into FAULTS.md. The stream compacts, cleans and archives; in some lives
batches share commits. After each kill hudi-rs and the lab read the table as the dead left it, and DuckDB
says from the source's files what the committed batches must give.

With `--course s3` the table is in an object store that by chance refuses, delays and loses answers, and may
end a life before it is killed. With `--course hand-over` the lives are in turns those of Apache Hudi's sink,
in its own JVM, and of the lab: each takes over from the other's dead, with one checkpoint folder and one
identifier.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psutil

from serde_lab.lab.jars.manifest import HUDI as BUNDLE
from serde_lab.lab.jars.manifest import fetch_jar
from serde_lab.peers.apache_hudi import SESSION_CONF
from serde_lab.pipeline.commit import table_services
from serde_lab.streams.options import DEFAULT_IDENTIFIER
from serde_lab.streams.query import BatchWriter
from serde_lab.table.table import HoodieTable
from serde_lab.table.timeline.checkpoints import checkpoints_in, newest_checkpoint
from tests.faults.fault_table import Fault, with_section
from tests.faults.looks import LOOKS
from tests.faults.misbehaving_s3 import MisbehavingS3
from tests.faults.small_table import MOR, Row, Seen, check_file_groups, check_readers
from tests.peers.hudi_options import HudiTable, HudiWrite, write_options
from tests.streams.file_stream import FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRIVER, WORKER, JVM = "the driver", "one worker", "the JVM"
RETURNED, COMPACTING = "between commit and checkpoint", "while compacting"
MOMENTS = (DRIVER, WORKER, JVM, RETURNED, COMPACTING)
HUDI = "Apache Hudi's sink"
OWN, HAND_OVER, S3 = "own", "hand-over", "s3"
TITLES = {
    OWN: "a stream is killed and goes on from its checkpoint",
    S3: "a stream into a misbehaving object store is killed and goes on from its checkpoint",
    HAND_OVER: "a killed stream is taken over by the other writer",
}
OPTIONS = {
    "hoodie.compact.inline": "true",
    "hoodie.compact.inline.max.delta.commits": "2",
    "hoodie.clean.commits.retained": "2",
    "hoodie.keep.min.commits": "4",
    "hoodie.keep.max.commits": "6",
}
_PATIENCE_S = 600
_OF_THE_STORE = ("StorageError", "ConcurrentWrite")
_LIVES = 10
"""So often the store may end a life before what is to be killed in it was killed."""


@dataclass(frozen=True, slots=True)
class Kill:
    """What is killed: at the earliest in the batch `batch`, and for processes `wait_s` after it began."""

    number: int
    moment: str
    batch: int
    wait_s: float

    @property
    def step(self) -> str:
        return f"kill {self.number + 1}: {self.moment}, in batch {self.batch}"


@dataclass(frozen=True, slots=True)
class Killed:
    """One kill and what readers saw afterwards."""

    kill: Kill
    looks: tuple[dict[str, Any], ...]

    def to_fault(self, title: str) -> Fault:
        return Fault.of(True, {"title": title, "step": self.kill.step, "looks": self.looks})


def rows_of(batch: int) -> list[Row]:
    """Updates of few keys, some of them late, and a row that only this batch has."""
    updates: list[Row] = [
        ("pq"[n % 2], f"k{(batch * 5 + n) % 11}", batch, str(batch)) for n in range(3)
    ]
    late: list[Row] = [
        ("p", f"l{batch % 3}", 1000 - batch if batch % 4 else batch, f"late {batch}")
    ]
    return [*updates, *late, ("pqr"[batch % 3], f"only {batch}", batch, "fresh")]


class KilledStream:
    """The stream in `folder`, over all of its lives; `kills.jsonl` has what was done so far.

    `margin`: batches that the source has beyond those in which something is killed. `store`: has the table.
    """

    def __init__(self, folder: Path, margin: int = 12, store: MisbehavingS3 | None = None) -> None:
        self.folder, self.margin, self.store = folder, margin, store
        self.stream = FileStream(folder, MOR)
        if store is not None:
            self.stream = replace(self.stream, table="s3://lake/t", store=store.options)

    def killed(self) -> list[Killed]:
        log = self.folder / "kills.jsonl"
        if not log.exists():
            return []
        found = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
        return [Killed(Kill(**one["kill"]), tuple(one["looks"])) for one in found]

    def supply(self, batches: int) -> None:
        """See to it that the source has so many batches."""
        there = len(list(self.stream.source.iterdir())) if self.stream.source.exists() else 0
        self.stream.add(*(rows_of(number) for number in range(there, batches)))

    def stored(self) -> int:
        """The last batch that the table holds, pending ones too; -1 if there is none."""
        if not HoodieTable.exists(self.stream.storage):
            return -1
        last = newest_checkpoint(HoodieTable.open(self.stream.storage), DEFAULT_IDENTIFIER)
        return -1 if last is None else last.batch

    @contextmanager
    def calm(self) -> Iterator[None]:
        """Meanwhile the store behaves."""
        if self.store is not None:
            self.store.calm = True
        yield
        if self.store is not None:
            self.store.calm = False

    def look(self) -> None:
        """What readers see is what the committed batches give, and what Spark noted is stored."""
        noted = self.stream.checkpoint / "commits"
        numbers = [int(file.name) for file in noted.glob("[0-9]*")] if noted.exists() else []
        assert self.stored() >= max(numbers, default=-1), "Spark counts a batch that is not stored"
        if not HoodieTable.exists(self.stream.storage):
            return
        table = HoodieTable.open(self.stream.storage)
        committed = [
            found[DEFAULT_IDENTIFIER].batch
            for instant in table.timeline().completed()
            if (found := checkpoints_in(table.commit_metadata(instant), instant.time))
        ]
        assert committed == sorted(set(committed)), "a batch is committed twice, or out of order"
        if committed:
            check_readers(self.stream.storage, self.expected(committed[-1] + 1))

    def check_end(self) -> None:
        """All batches of the source are stored, and each file group is whole."""
        end = len(list(self.stream.source.iterdir()))
        with self.calm():
            assert self.stored() == end - 1
            check_readers(self.stream.storage, self.expected(end))
            check_file_groups(self.stream.storage)

    def expected(self, batches: int) -> Seen:
        """The rows after so many batches, by DuckDB from the source's files alone."""
        files = [str(path) for path in sorted(self.stream.source.iterdir())[:batches]]
        with duckdb.connect() as connection:
            rows = connection.execute(
                "select p, k, ts, v from read_parquet($1, filename = true)"
                " qualify row_number() over (partition by p, k order by ts desc, filename desc) = 1",
                [files],
            ).fetchall()
        return {(p, k): (ts, v) for p, k, ts, v in rows}

    def live(self, kills: Sequence[Kill], per_commit: int, by_hudi: bool = False) -> bool:
        """One life: a driver that runs until the last of `kills`; without any, to the end of the source.

        `by_hudi`: Apache Hudi's sink writes. False if the store ended the life, in a sentence.
        """
        self.supply(max((kill.batch for kill in kills), default=0) + self.margin)
        ends = kills[-1] if kills and kills[-1].moment in (RETURNED, COMPACTING) else None
        life = {
            "folder": str(self.folder),
            "per_commit": per_commit,
            "end": None if ends is None else asdict(ends),
            "by_hudi": by_hudi,
            "table": self.stream.table,
        }
        for name in ("batch", "jvm", "hudi"):
            (self.folder / name).unlink(missing_ok=True)
        with (self.folder / "log").open("wb") as log:
            command = [
                sys.executable,
                "-m",
                "tests.faults.killed_stream",
                "--life",
                json.dumps(life),
            ]
            reach = {} if self.store is None else self.store.environment
            driver = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **reach})
        try:
            killed = all(kill is ends or self._kill(driver, kill) for kill in kills)
            code = driver.wait(_PATIENCE_S)
            ways = {DRIVER: -signal.SIGKILL, JVM: None, HUDI: None}
            died = ways.get(kills[-1].moment if kills else "", 0)
            as_planned = killed and (died is None or code == (-signal.SIGKILL if ends else died))
            assert as_planned or self._ended_by_the_store(code), self._last_words()
            with self.calm():
                self.look()
            return as_planned
        finally:
            self._bury(driver)

    def _ended_by_the_store(self, code: int) -> bool:
        """Whether the driver ended with an error of the lab's, which names the store."""
        sentence = any(f"{kind}: s3://lake/t" in self._last_words() for kind in _OF_THE_STORE)
        return self.store is not None and code == 1 and sentence

    def _kill(self, driver: subprocess.Popen[bytes], kill: Kill) -> bool:
        """Kill something; False if the driver ended before."""
        until = time.monotonic() + _PATIENCE_S
        while self._batch() < kill.batch:
            if driver.poll() is not None:
                return False
            assert time.monotonic() < until, f"no batch {kill.batch} came"
            time.sleep(0.01)
        time.sleep(kill.wait_s)
        if kill.moment == DRIVER:
            driver.kill()
        elif kill.moment in (JVM, HUDI):
            os.kill(self._jvm(), signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                # Python cannot go on, and says so; if it only waits, it is of no use either
                driver.wait(20)
            driver.kill()
        else:
            while driver.poll() is None:
                workers = self._workers()
                if workers:
                    with suppress(psutil.NoSuchProcess):
                        random.Random(kill.number).choice(workers).kill()
                        return True
                time.sleep(0.01)
            return False
        return True

    def _workers(self) -> list[psutil.Process]:
        """The Python processes that Spark's daemon has forked."""
        with suppress(psutil.NoSuchProcess, OSError, ValueError):
            below = psutil.Process(self._jvm()).children(recursive=True)
            daemons = {one.pid for one in below if one.ppid() == self._jvm()}
            return [one for one in below if one.pid not in daemons and one.ppid() in daemons]
        return []

    def _batch(self) -> int:
        """The batch that the living writer has begun."""
        with suppress(OSError, ValueError):
            return int((self.folder / "batch").read_text())
        if not (self.folder / "hudi").exists():
            return -1
        # its sink tells nobody, but Spark plans a batch just before
        planned = (self.stream.checkpoint / "offsets").glob("[0-9]*")
        return max((int(file.name) for file in planned), default=-1)

    def _jvm(self) -> int:
        return int((self.folder / "jvm").read_text())

    def _last_words(self) -> str:
        return (self.folder / "log").read_text("utf-8", errors="replace")[-4000:]

    def _bury(self, driver: subprocess.Popen[bytes]) -> None:
        """End what is left of a life, and remove its temporary files."""
        with suppress(psutil.NoSuchProcess, OSError, ValueError):
            jvm = psutil.Process(self._jvm())
            left = [*jvm.children(recursive=True), jvm]
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(left, 10)
        driver.kill()
        driver.wait()
        shutil.rmtree(self.folder / "spark", ignore_errors=True)

    def note(self, kills: Sequence[Kill]) -> None:
        """Keep what readers saw since the last note with the last of `kills`, which share a life."""
        looks = [look.to_dict() for look in LOOKS]
        LOOKS.clear()
        with (self.folder / "kills.jsonl").open("a", encoding="utf-8") as log:
            for kill in kills:
                log.write(json.dumps({"kill": asdict(kill), "looks": looks}) + "\n")


class DyingWriter(BatchWriter):
    """Notes where it is, and kills its own process where no other process could hit the moment."""

    def __init__(self, stream: FileStream, per_commit: int, end: Kill | None) -> None:
        own = {
            "serde_lab.stream.batches_per_commit": per_commit,
            # the checkpoint folder may be that of Apache Hudi's sink
            "serde_lab.stream.takes_over": "true",
        }
        super().__init__(stream.storage.url, stream.options() | OPTIONS | own)
        self.place, self.end = stream.folder / "batch", end

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.place.write_text(str(batch_id))
        if self.end is not None and batch_id >= self.end.batch and self.end.moment == COMPACTING:
            table_services.complete_compaction = _die
        super().__call__(df, batch_id)
        if self.end is not None and batch_id >= self.end.batch and self.end.moment == RETURNED:
            _die()


def _die(*_: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def live(folder: Path, table: str, per_commit: int, end: Kill | None, by_hudi: bool) -> None:
    """The driver of one life, in a process of its own."""
    from serde_lab.lab.session.session import SessionSettings, start_session

    few = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    local = folder / "spark"
    local.mkdir(parents=True, exist_ok=True)
    jars = (str(fetch_jar(BUNDLE).path),) if by_hudi else ()
    settings = SessionSettings(
        cores=2,
        driver_memory="1g" if by_hudi else "768m",
        local_folder=str(local),
        conf=few | (SESSION_CONF if by_hudi else {}),
        jars=jars,
    )
    spark = start_session(settings)
    (folder / "jvm").write_text(str(spark.sparkContext._gateway.proc.pid))
    stream = FileStream(folder, MOR, table=table)
    if by_hudi:
        (folder / "hudi").touch()
        started = stream.frame(spark).writeStream.format("hudi").outputMode("append")
        started = started.options(**hudi_options()).trigger(availableNow=True)
        started = started.option("checkpointLocation", str(stream.checkpoint))
        started.start(stream.storage.url).awaitTermination()
    else:
        writer = DyingWriter(stream, per_commit, end)
        writer.flush()
        query = stream.frame(spark).writeStream.foreachBatch(writer).trigger(availableNow=True)
        query.option("checkpointLocation", str(stream.checkpoint)).start().awaitTermination()
        writer.flush()
    spark.stop()


def hudi_options() -> dict[str, str]:
    """Of Apache Hudi's sink: the same table, and the same services at the same times."""
    table = HudiTable("t", ("k",), ("ts",), ("p",), MOR, buckets=2)
    inside = {
        # as the lab's: in the batch, not in a thread beside it
        "hoodie.datasource.compaction.async.enable": "false",
        "hoodie.keep.max.commits": OPTIONS["hoodie.keep.max.commits"],
    }
    write = HudiWrite(
        compact_after=int(OPTIONS["hoodie.compact.inline.max.delta.commits"]),
        retain_commits=int(OPTIONS["hoodie.clean.commits.retained"]),
        archive_after=int(OPTIONS["hoodie.keep.min.commits"]),
        extra=inside,
    )
    return write_options(table, write)


def run(folder: Path, kills: int, batches: int, course: str = OWN) -> Iterator[Sequence[Killed]]:
    """Kill the stream so often, and see it to its end; goes on where an earlier call stopped.

    Yields all that was killed so far, after each life.
    """
    with ExitStack() as held:
        store = held.enter_context(MisbehavingS3(0.01)) if course == S3 else None
        if store is not None:
            # the table that an earlier call made was in that call's store
            shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        yield from _run(KilledStream(folder, store=store), kills, batches, course)


def _run(stream: KilledStream, kills: int, batches: int, course: str) -> Iterator[Sequence[Killed]]:
    LOOKS.clear()
    while (number := len(stream.killed())) < kills:
        chance = random.Random(number)
        by_hudi = course == HAND_OVER and number % 2 == 0
        due: list[Kill] = []
        with stream.calm():
            at = stream.stored()
        while not due or due[-1].moment == WORKER:
            number += bool(due)
            at += chance.randint(2, 3 * batches // kills // 2)
            moment = _moment(course, number)
            due.append(Kill(number, moment, at, chance.uniform(0, 3 if by_hudi else 0.8)))
        # what shares a commit must be flushed before Apache Hudi writes, and the dead flush nothing
        per_commit = 1 if course == HAND_OVER else chance.choice((1, 1, 3))
        assert any(stream.live(due, per_commit, by_hudi) for _ in range(_LIVES))
        stream.note(due)
        _say(f"{len(stream.killed())} of {kills}: {due[-1].step}")
        yield stream.killed()
    stream.supply(batches)
    assert any(stream.live((), per_commit=3) for _ in range(_LIVES))
    stream.check_end()
    if stream.store is not None:
        _say(", ".join(f"{times} requests {kind}" for kind, times in stream.store.done.items()))
    yield stream.killed()


def _moment(course: str, number: int) -> str:
    """What is killed: in a hand-over in turns Hudi's sink, and the lab at the moments that end a life."""
    if course != HAND_OVER:
        return MOMENTS[number % len(MOMENTS)]
    ends = (DRIVER, JVM, RETURNED, COMPACTING)
    return ends[number // 2 % len(ends)] if number % 2 else HUDI


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.killed_stream", description=__doc__
    )
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--course", choices=TITLES, default=OWN)
    parser.add_argument("--folder", type=Path, help="(.cache/serde_lab/killed_stream/COURSE)")
    parser.add_argument(
        "--table", type=Path, help="the file whose section of this stream is written"
    )
    parser.add_argument("--life", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.life:
        life = json.loads(given.life)
        end = None if life["end"] is None else Kill(**life["end"])
        live(Path(life["folder"]), life["table"], life["per_commit"], end, life["by_hudi"])
        return
    folder = (given.folder or Path(".cache/serde_lab/killed_stream") / given.course).absolute()
    title = TITLES[given.course]
    for killed in run(folder, given.kills, given.batches, given.course):
        if given.table:
            text = given.table.read_text("utf-8") if given.table.exists() else ""
            section = with_section(text, title, [one.to_fault(title) for one in killed])
            given.table.write_text(section, encoding="utf-8")
    # the next call begins anew
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
