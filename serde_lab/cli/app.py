"""Dispatches the commands and turns every outcome into an exit status.

Errors become one sentence on standard error.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import typer
from typer.exceptions import TyperException

from serde_lab.cli import ab, baseline, check, gate, references, results, run, table
from serde_lab.cli.console import say
from serde_lab.errors import LabError, PortabilityWarning
from serde_lab.files import discard_output, output_errors

EXIT_STATUSES = """
Exit statuses: \n
  0  all right \n
  1  the tool or its environment failed, an arm raised, nothing was measured, or a baseline is missing \n
  2  wrong usage: an invalid option, scenario, schema or input \n
  3  a regression \n
  4  a wrong answer: the timings of that arm do not count \n
  5  nothing wrong, but undecided (only with --strict; otherwise 0 and a warning) \n
  130  ctrl-C \n
If several apply, the first of 1, 2, 4, 3, 5 is returned. The other arms are still measured.
"""

app = typer.Typer(
    name="serde-lab",
    help="Measures what SerDe strategies cost in a Spark pipeline that writes real Hudi tables, and checks"
    " the tables.",
    epilog=EXIT_STATUSES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
run.register(app)
results.register(app)
references.register(app)
check.register(app)
gate.register(app)
baseline.register(app)
ab.register(app)
table.register(app)

TRACEBACK_VARIABLE = "SERDE_LAB_TRACEBACK"
_LONG_WORD = re.compile(r"\S{300,}")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Characters that an encoding lacks as JSON's escapes, so that JSON stays JSON on any terminal."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


_ESCAPES = "serde_lab.escapes"
codecs.register_error(_ESCAPES, _escaped)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    if sys.stdout is None:
        say("serde-lab: standard output is closed")
        return 1
    if sys.flags.optimize > 1:
        say("serde-lab: -OO and PYTHONOPTIMIZE=2 leave out docstrings, without which pyspark fails")
        return 1
    for stream in (sys.stdout, sys.stderr):
        # the last is that of standard output in the locale C
        known = ("strict", "backslashreplace", "surrogateescape")
        if isinstance(stream, io.TextIOWrapper) and stream.errors in known:
            stream.reconfigure(errors=_ESCAPES)
    with warnings.catch_warnings():
        warnings.simplefilter("default", PortabilityWarning)
        warnings.showwarning = _showing(warnings.showwarning)
        return _run(arguments)


def _showing(others: Callable[..., None]) -> Callable[..., None]:
    """Show the project's own warnings as one line each on standard error; `others` shows the rest."""

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if not issubclass(category, PortabilityWarning):
            others(message, category, *where, **more)
        elif str(message) not in shown:
            shown.add(str(message))
            say(f"serde-lab: warning: {message}")

    shown: set[str] = set()
    return show


def _run(arguments: list[str] | None) -> int:
    try:
        outcome = app(args=arguments, prog_name="serde-lab", standalone_mode=False)
        # what is still buffered, since a write error at the interpreter's end would be unhandled
        with output_errors():
            sys.stdout.flush()
    except LabError as exc:
        _print_traceback(exc)
        first, *problems = str(exc).split("\n  ")
        for line in (f"serde-lab: {first}", *(f"  {problem}" for problem in problems)):
            say(_shortened(line), style="bold red")
        return exc.exit_status
    except TyperException as exc:
        # the validator's own words for "not one of these" say first that it is an error
        say(f"serde-lab: {exc.format_message().replace('Value error, ', '')}")
        return 2
    except typer.Exit as exc:
        return exc.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except SystemExit as exc:
        # how typer reports that the reader of a pipe has closed it
        if isinstance(exc.__context__, BrokenPipeError):
            discard_output(sys.__stdout__)
            return 0
        return exc.code if isinstance(exc.code, int) else 1
    except OSError as exc:  # a full disk, a read-only file system, a name that is too long
        _print_traceback(exc)
        say(f"serde-lab: {_shortened(_of_system(exc))}", style="bold red")
        return 2 if exc.errno == errno.ENAMETOOLONG else 1
    except Exception as exc:  # the process edge: unforeseen errors get one sentence too
        _print_traceback(exc)
        say(
            f"serde-lab: internal error: {type(exc).__name__}: {' '.join(str(exc).split())[:300]}"
            f" (set {TRACEBACK_VARIABLE}=1 to see the traceback)",
            style="bold red",
        )
        return 1
    if outcome == 130:  # typer's status for ctrl-C
        return _interrupted()
    return outcome if isinstance(outcome, int) else 0


def _interrupted() -> int:
    say("serde-lab: interrupted")
    return 130


def _of_system(exc: OSError) -> str:
    reason = exc.strerror or (str(exc).strip().splitlines() or [type(exc).__name__])[0]
    return reason if exc.filename is None else f"{exc.filename}: {reason}"


def _shortened(text: str) -> str:
    """`text` with the middle of very long words left out."""
    return _LONG_WORD.sub(lambda word: f"{word[0][:100]}…{word[0][-20:]}", text)


def _print_traceback(exc: BaseException) -> None:
    if os.environ.get(TRACEBACK_VARIABLE):
        traceback.print_exception(exc)


def entry() -> None:
    """The entry point of the installed command `serde-lab`."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # otherwise the next opened file would become that standard stream
            os.open(os.devnull, os.O_RDWR)
    sys.exit(main())
