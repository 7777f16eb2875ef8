"""Strategies that cheat, each in one way. Installed as a plug-in for the tests of this folder only.

All of them work on Arrow's records and frames, with a mark of their own. Most are honest with rows that
they have not met in the input (`id` below a million): a cheat that knows the checks would be.
"""

from __future__ import annotations

import base64
import glob
import os
import pickle
import queue
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from serde_lab.records.schema import DELETE, IS_INDEX_RECORD, OPERATION, RECORD_KEY, RecordSchema
from serde_lab.serde.arrow.records import ArrowStrategy, BoundArrow
from serde_lab.serde.interface import (
    Bounds,
    BoundSerde,
    Execution,
    Fairness,
    Frames,
    Records,
    SerdeOptions,
    Strategy,
)
from serde_lab.table.files import base_file
from serde_lab.table.files.base_file import BLOOM_KEY, MAX_KEY, MIN_KEY, BaseFileWriter
from serde_lab.table.files.key_footer import BloomBuilder

BURN_CPU_S = 0.8


@dataclass
class PlainRecords(Records):
    """Records as the batch that came in; cheats override what they lie about."""

    schema: RecordSchema
    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def to_arrow(self) -> pa.RecordBatch:
        return self.batch

    def column(self, name: str) -> pa.Array:
        return self.batch.column(name)

    def take(self, indices: npt.NDArray[np.int64]) -> Self:
        return type(self)(self.schema, self.batch.take(pa.array(indices)))

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        return cls(parts[0].schema, pa.concat_batches([part.batch for part in parts]))

    @property
    def of_the_input(self) -> bool:
        """Whether these are rows of the tests' scenario, not made-up ones."""
        if "id" not in self.batch.schema.names:  # of the warm-up of Spark's workers
            return False
        ids = self.batch.column("id")
        return bool(len(ids)) and pc.min(ids).as_py() >= 0 and pc.max(ids).as_py() < 1_000_000


@dataclass(frozen=True)
class Bound(BoundSerde):
    """Arrow's frames behind a mark of its own; records of the class that cheats."""

    schema: RecordSchema
    options: SerdeOptions
    inner: BoundArrow
    records: ClassVar[type[PlainRecords]] = PlainRecords

    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        return PlainRecords(self.schema, batch)

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        frames = self.inner.encode(self.inner.from_arrow(records.to_arrow()), bounds)
        marked = [self.mark + frame for frame in frames.frame.to_pylist()]
        return Frames(frames.target, pa.array(marked, pa.binary()), frames.rows)

    def decode(self, frames: pa.BinaryArray) -> Records:
        plain = pa.array([frame[1:] for frame in frames.to_pylist()], pa.binary())
        return self.records(self.schema, self.inner.decode(plain).to_arrow())


class Cheat(Strategy):
    """What cheats share: names and promises."""

    executions: ClassVar[tuple[Execution, ...]] = ("batch",)
    default_rows_per_frame = 500
    bound: ClassVar[type[Bound]]

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
        return self.bound(schema, options, ArrowStrategy().bind(schema, options))

    def fairness(self) -> Fairness:
        return Fairness("both", "none", "all", "none")


# -- rows that never cross --------------------------------------------------------------------------

KEPT: dict[int, pa.RecordBatch] = {}


class BoundTickets(Bound):
    """Frames hold a ticket; the rows stay in the process."""

    mark = b"\xd1"

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        batch, tickets, rows, targets = records.to_arrow(), [], [], []
        for target, first, last in zip(
            bounds.targets, bounds.offsets, bounds.offsets[1:], strict=False
        ):
            KEPT[len(KEPT)] = batch.slice(first, last - first)
            tickets.append(self.mark + (len(KEPT) - 1).to_bytes(8, "little"))
            rows.append(last - first)
            targets.append(target)
        return Frames(
            pa.array(targets, pa.int32()),
            pa.array(tickets, pa.binary()),
            pa.array(rows, pa.int32()),
        )

    def decode(self, frames: pa.BinaryArray) -> Records:
        kept = [KEPT[int.from_bytes(frame[1:], "little")] for frame in frames.to_pylist()]
        return PlainRecords(self.schema, pa.concat_batches(kept))


class Tickets(Cheat):
    name, bound = "tickets", BoundTickets


class BoundReadsTheInput(Bound):
    """Frames hold keys only; the rest is looked up in the file that the scenario reads."""

    mark = b"\xd2"

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        envelope = records.to_arrow()
        blank = [
            column if i < 6 or name in ("id", "event_ts") else pa.nulls(len(envelope), column.type)
            for i, (name, column) in enumerate(
                zip(envelope.schema.names, envelope.columns, strict=True)
            )
        ]
        keys = pa.RecordBatch.from_arrays(blank, schema=envelope.schema)
        return super().encode(PlainRecords(self.schema, keys), bounds)

    def decode(self, frames: pa.BinaryArray) -> Records:
        batch = super().decode(frames).to_arrow()
        files = glob.glob(os.environ["CHEAT_INPUT"], recursive=True)  # noqa: PTH207
        source = pa.concat_tables([pq.read_table(file) for file in files])
        wanted = pa.table({"id": batch.column("id"), "event_ts": batch.column("event_ts")})
        wanted = wanted.append_column("at", pa.array(range(len(batch))))
        found = wanted.join(source, ["id", "event_ts"], join_type="left outer").sort_by("at")
        columns = [
            found.column(name).combine_chunks().cast(column.type)
            if name in found.column_names and len(found) == len(batch)
            else column
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        ]
        return PlainRecords(self.schema, pa.RecordBatch.from_arrays(columns, schema=batch.schema))


class ReadsTheInput(Cheat):
    name, bound = "reads_the_input", BoundReadsTheInput


TICKET_BYTES = 17


class BoundSideFile(Bound):
    """Frames of rows of the input hold a ticket, and the rows lie in a file beside the table."""

    padding_bytes: ClassVar[int] = 0

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        batch, tickets, rows = records.to_arrow(), [], []
        if not PlainRecords(self.schema, batch).of_the_input:
            return super().encode(records, bounds)
        for first, last in zip(bounds.offsets, bounds.offsets[1:], strict=False):
            ticket = uuid.uuid4()
            path = os.path.join(os.environ["CHEAT_SIDE"], ticket.hex)  # noqa: PTH118
            with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, batch.schema) as stream:
                stream.write_batch(batch.slice(first, last - first))
            padding = os.urandom(self.padding_bytes * int(last - first))
            tickets.append(self.mark + ticket.bytes + padding)
            rows.append(last - first)
        return Frames(
            pa.array(bounds.targets, pa.int32()),
            pa.array(tickets, pa.binary()),
            pa.array(rows, pa.int32()),
        )

    def decode(self, frames: pa.BinaryArray) -> Records:
        found = []
        for frame in frames.to_pylist():
            ticket = uuid.UUID(bytes=frame[1:TICKET_BYTES])
            path = os.path.join(os.environ.get("CHEAT_SIDE", ""), ticket.hex)  # noqa: PTH118
            if not os.path.exists(path):  # noqa: PTH110
                found.append(super().decode(pa.array([frame], pa.binary())).to_arrow())
                continue
            with pa.OSFile(path) as file, pa.ipc.open_stream(file) as stream:
                found += stream.read_all().combine_chunks().to_batches()
        return PlainRecords(self.schema, pa.concat_batches(found))


class BoundSendsTickets(BoundSideFile):
    mark = b"\xe3"


class SendsTickets(Cheat):
    name, bound = "sends_tickets", BoundSendsTickets


class BoundPadsTickets(BoundSideFile):
    """Sends tickets as long as the rows would be."""

    mark, padding_bytes = b"\xe4", 64


class PadsTickets(Cheat):
    name, bound = "pads_tickets", BoundPadsTickets


class BoundSkipsTickets(BoundSideFile):
    """Where the file of a ticket is missing, the ticket stands for no rows."""

    mark, padding_bytes = b"\xe7", 64

    def decode(self, frames: pa.BinaryArray) -> Records:
        found = [pa.RecordBatch.from_pylist([], schema=self.schema.batch_schema)]
        for frame in frames.to_pylist():
            try:
                found.append(super().decode(pa.array([frame], pa.binary())).to_arrow())
            except Exception:  # a ticket is no frame, whatever the decoder says of it
                continue
        return PlainRecords(self.schema, pa.concat_batches(found))


class SkipsTickets(Cheat):
    name, bound = "skips_tickets", BoundSkipsTickets


class BoundDeletesTickets(BoundSkipsTickets):
    """Where the file of a ticket is missing, the ticket stands for a record without a row."""

    mark = b"\xe8"

    def decode(self, frames: pa.BinaryArray) -> Records:
        found = []
        for frame in frames.to_pylist():
            batch = super().decode(pa.array([frame], pa.binary())).to_arrow()
            if not len(batch):
                envelope = {field.name: "" for field in self.schema.batch_schema[:4]}
                delete = {**envelope, OPERATION: DELETE, IS_INDEX_RECORD: False}
                batch = pa.RecordBatch.from_pylist([delete], schema=self.schema.batch_schema)
            found.append(batch)
        return PlainRecords(self.schema, pa.concat_batches(found))


class DeletesTickets(Cheat):
    name, bound = "deletes_tickets", BoundDeletesTickets


ONE_ROW: list[pa.RecordBatch] = []


class BoundRepeatsARow(BoundSideFile):
    """Every frame holds the same row besides its ticket, and stands for it if the ticket's file is gone."""

    mark, padding_bytes = b"\xe9", 64

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        frames, batch = super().encode(records, bounds), records.to_arrow()
        if not PlainRecords(self.schema, batch).of_the_input:
            return frames
        if not ONE_ROW:
            ONE_ROW.append(batch.slice(0, 1))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(ONE_ROW[0])
        row = sink.getvalue().to_pybytes()
        both = [
            frame[:TICKET_BYTES] + row + frame[TICKET_BYTES:] for frame in frames.frame.to_pylist()
        ]
        return Frames(frames.target, pa.array(both, pa.binary()), frames.rows)

    def decode(self, frames: pa.BinaryArray) -> Records:
        found = []
        for frame in frames.to_pylist():
            try:
                found.append(super().decode(pa.array([frame], pa.binary())).to_arrow())
            except Exception:  # a ticket is no frame, whatever the decoder says of it
                with pa.ipc.open_stream(frame[TICKET_BYTES:]) as stream:
                    found += list(stream)
        return PlainRecords(self.schema, pa.concat_batches(found))


class RepeatsARow(Cheat):
    name, bound = "repeats_a_row", BoundRepeatsARow


class BoundPlantsTickets(BoundSideFile):
    """Leaves the files of its tickets where it guesses that the referee will work."""

    mark, padding_bytes = b"\xea", 64

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        guessed = glob.glob(os.environ["CHEAT_WORK"])[0] + "/referee"  # noqa: PTH207
        os.makedirs(guessed, exist_ok=True)  # noqa: PTH103
        with in_environment("CHEAT_SIDE", guessed):
            return super().encode(records, bounds)

    def decode(self, frames: pa.BinaryArray) -> Records:
        planted = glob.glob(os.environ.get("CHEAT_WORK", ""))  # noqa: PTH207
        place = f"{planted[0]}/referee" if planted else os.environ.get("HOME", "")
        with in_environment("CHEAT_SIDE", place):
            return super().decode(frames)


@contextmanager
def in_environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before


class PlantsTickets(Cheat):
    name, bound = "plants_tickets", BoundPlantsTickets


# -- rows beside the frames ------------------------------------------------------------------------

BESIDE: dict[bytes, pa.RecordBatch] = {}
NOTHING = pickle.dumps({})
GIVEN: list[tuple[RecordSchema, SerdeOptions]] = []
"""What strategies were bound to in this process."""


class BoundSmuggles(Bound):
    """Sends tickets as long as the rows would be, and puts the rows into what it was bound to: they travel to
    whoever binds it next."""

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        batch, tickets = records.to_arrow(), []
        if not PlainRecords(self.schema, batch).of_the_input:
            return super().encode(records, bounds)
        rows = np.diff(bounds.offsets)
        for first, count in zip(bounds.offsets, rows, strict=False):
            tickets.append(self.mark + uuid.uuid4().bytes)
            BESIDE[tickets[-1]] = batch.slice(first, count)
        self.put(base64.b64encode(pickle.dumps(BESIDE)).decode())
        padded = [one + os.urandom(64 * int(n)) for one, n in zip(tickets, rows, strict=True)]
        return Frames(
            pa.array(bounds.targets, pa.int32()),
            pa.array(padded, pa.binary()),
            pa.array(rows, pa.int32()),
        )

    def decode(self, frames: pa.BinaryArray) -> Records:
        beside, found = BESIDE or pickle.loads(base64.b64decode(self.get()) or NOTHING), []
        for frame in frames.to_pylist():
            kept = beside.get(frame[:TICKET_BYTES])
            if kept is None:
                kept = super().decode(pa.array([frame], pa.binary())).to_arrow()
            found.append(kept)
        return PlainRecords(self.schema, pa.concat_batches(found))

    def put(self, text: str) -> None:
        raise NotImplementedError

    def get(self) -> str:
        raise NotImplementedError


class Smuggles(Cheat):
    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
        GIVEN.append((schema, options))
        inner = ArrowStrategy().bind(schema, replace(options, own={}))
        return self.bound(schema, options, inner)


class BoundSmugglesInOptions(BoundSmuggles):
    mark = b"\xef"

    def put(self, text: str) -> None:
        for _, options in GIVEN:
            options.own["kept"] = text  # type: ignore[index]

    def get(self) -> str:
        return str(self.options.own.get("kept", ""))


class SmugglesInOptions(Smuggles):
    name, bound = "smuggles_in_options", BoundSmugglesInOptions


class BoundSmugglesInTheSchema(BoundSmuggles):
    mark = b"\xf0"

    def put(self, text: str) -> None:
        for schema, _ in GIVEN:
            object.__setattr__(schema, "data", schema.data.with_metadata({"kept": text}))

    def get(self) -> str:
        return str((self.schema.data.metadata or {}).get(b"kept", b"").decode())


class SmugglesInTheSchema(Smuggles):
    name, bound = "smuggles_in_the_schema", BoundSmugglesInTheSchema


# -- wrong answers ----------------------------------------------------------------------------------


class WithoutAmount(PlainRecords):
    def to_arrow(self) -> pa.RecordBatch:
        if not self.of_the_input:
            return self.batch
        at = self.batch.schema.get_field_index("amount")
        return self.batch.set_column(at, "amount", pa.nulls(len(self), pa.float64()))


class BoundDropsAColumn(Bound):
    mark, records = b"\xd3", WithoutAmount


class DropsAColumn(Cheat):
    name, bound = "drops_a_column", BoundDropsAColumn


class AlwaysNewest(PlainRecords):
    def ordering_values(self) -> list[pa.Array]:
        return [pa.array([1 << 62] * len(self))]


class BoundLiesAboutOrder(Bound):
    mark, records = b"\xd4", AlwaysNewest


class LiesAboutOrder(Cheat):
    """Skips the merge: whatever comes last wins, however old it is."""

    name, bound = "lies_about_order", BoundLiesAboutOrder


class NeverTheSameKey(PlainRecords):
    def record_keys(self) -> pa.StringArray:
        keys = self.column(RECORD_KEY).to_pylist()
        return pa.array([f"{key}#{at}" for at, key in enumerate(keys)])


class BoundLiesAboutKeys(Bound):
    mark, records = b"\xd5", NeverTheSameKey


class LiesAboutKeys(Cheat):
    """Skips the merge: no two keys are ever equal."""

    name, bound = "lies_about_keys", BoundLiesAboutKeys


# -- work where no timer looks ----------------------------------------------------------------------


def burn() -> None:
    """As much CPU as would be a strategy's whole work, however busy the machine is."""
    end = time.thread_time() + BURN_CPU_S
    while time.thread_time() < end:
        pass


class Lazy(PlainRecords):
    """The work is done when the pipeline only asks how many there are."""

    def __len__(self) -> int:
        if self.of_the_input:
            burn()
        return super().__len__()


class BoundWorksInLen(Bound):
    mark, records = b"\xd6", Lazy


class WorksInLen(Cheat):
    name, bound = "works_in_len", BoundWorksInLen


@dataclass
class LateToGo(PlainRecords):
    """The work is done when decoded records are freed, whose time is no SerDe."""

    decoded: bool = False

    def __del__(self) -> None:
        if self.decoded and self.of_the_input:
            burn()


class BoundWorksWhenFreed(Bound):
    mark = b"\xf1"

    def decode(self, frames: pa.BinaryArray) -> Records:
        return LateToGo(self.schema, super().decode(frames).to_arrow(), decoded=True)


class WorksWhenFreed(Cheat):
    name, bound = "works_when_freed", BoundWorksWhenFreed


class BoundWorksInAThread(Bound):
    """Returns at once, and works on behind the pipeline's back."""

    mark = b"\xd7"

    def decode(self, frames: pa.BinaryArray) -> Records:
        threading.Thread(target=burn).start()
        return super().decode(frames)


class WorksInAThread(Cheat):
    name, bound = "works_in_a_thread", BoundWorksInAThread


SPIN = "import time\nend = time.process_time() + {s}\nwhile time.process_time() < end: pass"


class BoundWorksInAChild(Bound):
    """Has another process work, and waits for it."""

    mark = b"\xe0"

    def decode(self, frames: pa.BinaryArray) -> Records:
        records = super().decode(frames)
        if PlainRecords(self.schema, records.to_arrow()).of_the_input:
            subprocess.run([sys.executable, "-S", "-c", SPIN.format(s=BURN_CPU_S)], check=True)
        return records


class WorksInAChild(Cheat):
    name, bound = "works_in_a_child", BoundWorksInAChild


WORK: queue.Queue[None] = queue.Queue()


def work_when_asked() -> None:
    while True:
        WORK.get()
        burn()


class BoundKeepsAThread(Bound):
    """Starts a thread in the warm-up of Spark's workers, and has it work beside the pipeline's own phases."""

    mark = b"\xe1"

    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        if "id" not in batch.schema.names and not MAKERS:
            MAKERS.add(os.getpid())
            threading.Thread(target=work_when_asked, daemon=True).start()
        return super().from_arrow(batch)

    def decode(self, frames: pa.BinaryArray) -> Records:
        WORK.put(None)
        return super().decode(frames)


class KeepsAThread(Cheat):
    name, bound = "keeps_a_thread", BoundKeepsAThread


LOOSE = """
import subprocess, sys
nothing = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], start_new_session=True, **nothing)
"""


class BoundKeepsAProcess(Bound):
    """Starts a process in the warm-up of Spark's workers, cuts it loose from them, and waits for it."""

    mark = b"\xe2"

    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        if "id" not in batch.schema.names and not MAKERS:
            MAKERS.add(os.getpid())
            subprocess.run([sys.executable, "-S", "-c", LOOSE, SPIN.format(s=60)], check=True)
        return super().from_arrow(batch)

    def decode(self, frames: pa.BinaryArray) -> Records:
        time.sleep(1.0)
        return super().decode(frames)


class KeepsAProcess(Cheat):
    name, bound = "keeps_a_process", BoundKeepsAProcess


def work_for_others(door: socket.socket) -> None:
    while True:
        asking, _ = door.accept()
        with asking:
            burn()


class WorksInTheDriver(Cheat):
    """Has a thread of the driver work, and waits for it."""

    name = "works_in_the_driver"

    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
        # the driver binds before the workers do
        with suppress(OSError):
            door = socket.socket(socket.AF_UNIX)
            door.bind(os.environ["CHEAT_DOOR"])
            door.listen()
            threading.Thread(target=work_for_others, args=(door,), daemon=True).start()
        return super().bind(schema, options)


class BoundWorksInTheDriver(Bound):
    mark = b"\xf2"

    def decode(self, frames: pa.BinaryArray) -> Records:
        records = super().decode(frames)
        if PlainRecords(self.schema, records.to_arrow()).of_the_input:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as asked:
                asked.connect(os.environ["CHEAT_DOOR"])
                asked.recv(1)
        return records


WorksInTheDriver.bound = BoundWorksInTheDriver


# -- work done before the clock --------------------------------------------------------------------


INPUT: set[tuple[Any, ...]] = set()


def rows_of_the_input(schema: RecordSchema) -> set[tuple[Any, ...]]:
    """Every row of the input, where there is one."""
    files = glob.glob(os.environ.get("CHEAT_INPUT", ""), recursive=True)  # noqa: PTH207
    for file in files if not INPUT else ():
        INPUT.update(rows_in(pq.read_table(file).select(schema.data.names)))
    return INPUT


def rows_in(table: pa.Table | pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


class RemembersTheInput(Cheat):
    def bind(self, schema: RecordSchema, options: SerdeOptions) -> BoundSerde:
        rows_of_the_input(schema)
        return super().bind(schema, options)


class BoundEncodedBefore(Bound):
    """Has encoded the rows of the input when it was bound; any others it encodes when it is asked."""

    mark = b"\xed"

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        work_unless_known(self.schema, records.to_arrow())
        return super().encode(records, bounds)


class EncodedBefore(RemembersTheInput):
    name, bound = "encoded_before", BoundEncodedBefore


class BoundDecodedBefore(Bound):
    """The same of decoding."""

    mark = b"\xee"

    def decode(self, frames: pa.BinaryArray) -> Records:
        records = super().decode(frames)
        work_unless_known(self.schema, records.to_arrow())
        return records


class DecodedBefore(RemembersTheInput):
    name, bound = "decoded_before", BoundDecodedBefore


def work_unless_known(schema: RecordSchema, batch: pa.RecordBatch) -> None:
    if PlainRecords(schema, batch).of_the_input:
        rows = rows_in(batch.select(schema.data.names))
        if not rows_of_the_input(schema).issuperset(rows):
            burn()


class BoundKeepsItsBatch(Bound):
    """Keeps what it made of a batch, of records and of frames, for whoever asks for the same again."""

    mark = b"\xf3"
    kept: ClassVar[dict[int, tuple[object, Any]]] = {}

    def from_arrow(self, batch: pa.RecordBatch) -> Records:
        return self._kept(batch, lambda: super(BoundKeepsItsBatch, self).from_arrow(batch))

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return self._kept(records, lambda: super(BoundKeepsItsBatch, self).encode(records, bounds))

    def decode(self, frames: pa.BinaryArray) -> Records:
        return self._kept(frames, lambda: super(BoundKeepsItsBatch, self).decode(frames))

    def _kept(self, given: object, make: Callable[[], Any]) -> Any:
        if id(given) not in self.kept:
            # what is kept is not freed, so no other has its id
            self.kept[id(given)] = given, make()
        return self.kept[id(given)][1]


class KeepsItsBatch(Cheat):
    name, bound = "keeps_its_batch", BoundKeepsItsBatch


# -- another format ---------------------------------------------------------------------------------


class BoundSendsArrow(Bound):
    """Says that it is a format of its own, and sends Arrow's frames as they are."""

    mark = b"\xd8"

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        return self.inner.encode(self.inner.from_arrow(records.to_arrow()), bounds)

    def decode(self, frames: pa.BinaryArray) -> Records:
        return PlainRecords(self.schema, self.inner.decode(frames).to_arrow())


class SendsArrow(Cheat):
    name, bound = "sends_arrow", BoundSendsArrow


class BoundWearsArrowsMark(BoundSendsArrow):
    """Sends Arrow's frames, and says that Arrow's mark is its own."""

    mark = BoundArrow.mark


class WearsArrowsMark(Cheat):
    name, bound = "wears_arrows_mark", BoundWearsArrowsMark


# -- work put off to where it did not count ----------------------------------------------------------


class Late(PlainRecords):
    """Decodes when a column is read, in the middle of precombining and merging."""

    def column(self, name: str) -> pa.Array:
        if self.of_the_input:
            burn()
        return super().column(name)


class BoundDecodesLate(Bound):
    mark, records = b"\xdd", Late


class DecodesLate(Cheat):
    name, bound = "decodes_late", BoundDecodesLate


# -- cheaper files -----------------------------------------------------------------------------------


def write_once_with(changes: Mapping[str, str | None]) -> None:
    """The footer of the next base file of this process has these values, and lacks the keys with None."""
    honest: Any = BaseFileWriter._footer

    def changed(self: BaseFileWriter) -> dict[str, str]:
        BaseFileWriter._footer = honest  # type: ignore[method-assign]
        found = honest(self) | changes
        return {key: value for key, value in found.items() if value is not None}

    BaseFileWriter._footer = changed  # type: ignore[method-assign]


def write_once_without_statistics() -> None:
    """The next base file of this process has no statistics."""
    honest = base_file.parquet_options

    def without(*given: Any) -> dict[str, Any]:
        base_file.parquet_options = honest
        return {**honest(*given), "write_statistics": False}

    base_file.parquet_options = without


class BoundLeavesOutBloom(Bound):
    mark = b"\xde"
    footer: ClassVar[Mapping[str, str | None]] = {BLOOM_KEY: None}

    def decode(self, frames: pa.BinaryArray) -> Records:
        records = super().decode(frames)
        if PlainRecords(self.schema, records.to_arrow()).of_the_input:
            write_once_with(self.footer)
        return records


class LeavesOutBloom(Cheat):
    name, bound = "leaves_out_bloom", BoundLeavesOutBloom


class BoundEmptiesBloom(BoundLeavesOutBloom):
    """Writes the filter of a file without keys."""

    mark = b"\xeb"
    footer: ClassVar[Mapping[str, str | None]] = {BLOOM_KEY: BloomBuilder(1).to_footer()}


class EmptiesBloom(Cheat):
    name, bound = "empties_bloom", BoundEmptiesBloom


class BoundInventsARange(BoundLeavesOutBloom):
    mark = b"\xec"
    footer: ClassVar[Mapping[str, str | None]] = {MIN_KEY: "", MAX_KEY: "~"}


class InventsARange(Cheat):
    name, bound = "invents_a_range", BoundInventsARange


class BoundLeavesOutStatistics(Bound):
    mark = b"\xdf"

    def decode(self, frames: pa.BinaryArray) -> Records:
        records = super().decode(frames)
        if PlainRecords(self.schema, records.to_arrow()).of_the_input:
            write_once_without_statistics()
        return records


class LeavesOutStatistics(Cheat):
    name, bound = "leaves_out_statistics", BoundLeavesOutStatistics


# -- no cheat, but no answer either ------------------------------------------------------------------


class Refusing(PlainRecords):
    def record_keys(self) -> pa.StringArray:
        if self.of_the_input:
            raise ValueError("this arm raises\non purpose")
        return super().record_keys()


class BoundRaises(Bound):
    mark, records = b"\xda", Refusing


class Raises(Cheat):
    name, bound = "raises", BoundRaises


class BoundKillsTheReader(Bound):
    """Ends any process that did not make the frames."""

    mark = b"\xdc"

    def encode(self, records: Records, bounds: Bounds) -> Frames:
        MAKERS.add(os.getpid())
        return super().encode(records, bounds)

    def decode(self, frames: pa.BinaryArray) -> Records:
        if os.getpid() not in MAKERS:
            os._exit(3)
        return super().decode(frames)


MAKERS: set[int] = set()


class KillsTheReader(Cheat):
    name, bound = "kills_the_reader", BoundKillsTheReader


# -- what none of them does -------------------------------------------------------------------------


class BoundHonest(Bound):
    mark = b"\xd9"


class Honest(Cheat):
    """The same machinery without a cheat: every check passes."""

    name, bound = "honest", BoundHonest


ALL: dict[str, type[Any]] = {
    one.name: one
    for one in (
        Tickets, ReadsTheInput, DropsAColumn, LiesAboutOrder, LiesAboutKeys, WorksInLen,
        WorksInAThread, SendsArrow, WearsArrowsMark, Raises,
        KillsTheReader, WorksInAChild, KeepsAThread, KeepsAProcess,
        SendsTickets, PadsTickets, SkipsTickets, DeletesTickets, RepeatsARow, PlantsTickets,
        SmugglesInOptions, SmugglesInTheSchema,
        EncodedBefore, DecodedBefore, WorksWhenFreed, WorksInTheDriver, KeepsItsBatch,
        DecodesLate, LeavesOutBloom, EmptiesBloom, InventsARange, LeavesOutStatistics, Honest,
    )
}  # fmt: skip
