"""The command line of `python -m tpch`: parses arguments, shows progress, returns exit statuses."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from serde_lab.errors import LabError, UsageError
from serde_lab.files import output_errors
from serde_lab.inputs.parts import OnProgress
from serde_lab.runs.plain_text import plain_line
from tpch.generator import TABLES, find_table, generate
from tpch.workload import REFRESHED, check_refreshed, prepare_refreshes

_HELP = f"""\
Generate TPC-H tables as folders of parquet files: DIR/TABLE/part-00000.parquet and so on.

The tables are {", ".join(TABLES)}.
At scale factor 1 lineitem has 6,001,215 rows, and all eight together are about 1 GB
of text; sizes grow with the factor, which may be a fraction.

Each folder gets a file _manifest.json with row counts and checksums of the contents,
written last. A folder without it is unfinished, and the next call generates it again. A
finished folder with the requested table is left unchanged.
"""

_REFRESH_HELP = """\
Make orders and lineitem as a stream: DIR/TABLE/initial/part-00000.parquet and so on is the initial
load, and each file of DIR/TABLE/refreshes is one pair of TPC-H's refresh functions: 1,500 new
orders at scale factor 1, or their lineitems, and as many old ones in which the column
_hoodie_is_deleted is true. The column event_ts orders the rows. Both tables name the same orders.
"""

_EPILOG = """\
examples:
  python -m tpch generate --scale-factor 1 --tables lineitem,orders --out data
  python -m tpch generate --scale-factor 0.01 --out data
  python -m tpch generate --scale-factor 10 --tables lineitem --parts 32 --out data

exit status: 0 all right, 1 the generator is missing or failed, 2 wrong usage, 130 ctrl-C
"""


class _Parser(argparse.ArgumentParser):
    """Reports a usage error in one sentence instead of after a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="tpch", description="TPC-H data as parquet files.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser(
        "generate",
        help="generate tables",
        description=_HELP,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_common(command, "all", "all eight")
    command.add_argument(
        "--parts",
        type=int,
        metavar="N",
        help="number of files per table (default: one per million rows)",
    )
    command.set_defaults(run=_generate)
    command = commands.add_parser(
        "refresh",
        help="make the refresh functions' rows, as batches of a stream",
        description=_REFRESH_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_common(command, ",".join(REFRESHED), "both")
    command.add_argument(
        "--pairs", type=int, default=10, metavar="N", help="number of pairs (default: 10)"
    )
    command.add_argument(
        "--seed", type=int, default=1, metavar="N", help="decides which orders change (default: 1)"
    )
    command.set_defaults(run=_refresh)
    return parser


def _add_common(command: argparse.ArgumentParser, tables: str, which: str) -> None:
    command.add_argument(
        "--scale-factor",
        "-s",
        type=float,
        default=1.0,
        metavar="N",
        help="scale factor, above 0 (default: 1)",
    )
    command.add_argument(
        "--tables",
        default=tables,
        metavar="A,B",
        help=f"names of tables, separated by commas (default: {which})",
    )
    command.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder in which each table gets its own folder",
    )


def _generate(given: argparse.Namespace) -> None:
    asked = given.tables.split(",") if given.tables != "all" else TABLES
    names = [name.strip() for name in asked]
    for name in names:
        find_table(name)  # check all names before any work
    grid = Grid("table", "rows", "files", "checksum", "folder", box=None, pad_edge=False)
    with _bars() as report:
        for name in dict.fromkeys(names):
            made = generate(name, given.scale_factor, given.out, parts=given.parts, progress=report)
            grid.add_row(
                name,
                f"{made.manifest.rows:,}",
                str(len(made.manifest.parts)),
                made.manifest.content[:19],
                plain_line(f"{made.folder}{' (generated earlier)' if made.reused else ''}"),
            )
    _print(grid)


def _refresh(given: argparse.Namespace) -> None:
    names = [name.strip() for name in given.tables.split(",")]
    for name in names:
        check_refreshed(name)  # check all names before any work
    columns = ("table", "initial rows", "pairs", "folder")
    grid = Grid(*columns, box=None, pad_edge=False)
    with _bars() as report:
        for name in dict.fromkeys(names):
            made = prepare_refreshes(
                name, given.scale_factor, given.pairs, given.out, seed=given.seed, progress=report
            )
            earlier = " (made earlier)" if made.reused else ""
            grid.add_row(
                name,
                f"{made.manifests[0].rows:,}",
                f"{len(made.manifests[1].parts)}",
                plain_line(f"{made.initial.parent}{earlier}"),
            )
    _print(grid)


def _print(grid: Grid) -> None:
    """Print a table on standard output; that the reader of a pipe has closed it is no error."""
    # rich reports a closed pipe by SystemExit
    with output_errors(), suppress(SystemExit):
        Console(soft_wrap=True, markup=False, emoji=False).print(grid)


@contextmanager
def _bars() -> Iterator[OnProgress]:
    """Progress on standard error: bars on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    tasks: dict[str, TaskID] = {}

    def report(task: str, done: int, total: int) -> None:
        if task not in tasks:
            tasks[task] = bars.add_task(task, total=total)
        bars.update(tasks[task], completed=done, total=total)

    with bars:
        yield report


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status; an error is printed as one sentence."""
    # a shell that starts this in the background makes it ignore ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        given = _parser().parse_args(arguments)
        given.run(given)
    except KeyboardInterrupt:
        return _fail("interrupted; the next call generates the unfinished folder again", 130)
    except LabError as exc:
        return _fail(str(exc), exc.exit_status)
    except OSError as exc:
        return _fail(f"{exc.filename or 'the file system'}: {exc.strerror or exc}", 1)
    return 0


def _fail(sentence: str, status: int) -> int:
    console = Console(stderr=True, soft_wrap=True, markup=False, emoji=False, highlight=False)
    console.print(plain_line(f"tpch: {sentence}"))
    return status


if __name__ == "__main__":
    raise SystemExit(main())
