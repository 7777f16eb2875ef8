"""`python -m serde_lab` and `serde-lab`: the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command and exit; ctrl-C is one sentence from the first import on, which takes a second."""
    try:
        from serde_lab.cli.app import entry

        entry()
    except KeyboardInterrupt:
        sys.stderr.write("serde-lab: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
