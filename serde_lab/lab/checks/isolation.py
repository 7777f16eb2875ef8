"""Runs a command where it sees nothing but Python, its packages, and one folder: fresh Linux namespaces.

The command gets mount, network, process and IPC namespaces of its own, through a user namespace, and an empty
file system into which Python, the packages and shared libraries are mounted read-only. The module holds both
sides: run as a script, it builds the namespaces and becomes the command. It imports the standard library
alone, since it runs without packages.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOT_ISOLATED = 77
"""Exit status of the script where namespaces are not to be had."""

_NEW_NAMESPACES = 0x20000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000  # NS IPC USER PID NET
_BIND, _RECURSIVE, _PRIVATE, _READ_ONLY, _REMOUNT = 4096, 16384, 1 << 18, 1, 32
_NO_SUID, _NO_DEVICES, _DETACH = 2, 4, 2
_DEATH_SIGNAL, _SIGKILL = 1, 9
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/local/lib")
_LINKS = (*_LIBRARIES, "/bin")
"""The last may be in the name of the Python that an environment links to."""
_START_S = 120.0
_DEVICES = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")


@dataclass(frozen=True, slots=True)
class Enclosure:
    """What an isolated process finds; to look for it takes a second, so it is looked for once."""

    shown: tuple[str, ...]
    """Files and folders that it may read."""
    hidden: tuple[str, ...]
    """Files in them that are empty there."""

    @classmethod
    def without_changes_since(cls, since_s: float) -> Enclosure:
        """Python, its packages and shared libraries, less what changed since then, in seconds since 1970."""
        places = [Path(path).absolute() for path in _shown() if Path(path).exists()]
        # by both names, since a folder may be reached through a link
        shown = sorted({str(one) for place in places for one in (place, place.resolve())})
        roots = [path for path in shown if not any(path.startswith(f"{other}/") for other in shown)]
        return cls(tuple(roots), tuple(path for one in roots for path in _changed(one, since_s)))

    def command(self, command: Sequence[str], folder: Path) -> list[str]:
        """The command line that runs `command` in namespaces; it may read and write `folder`."""
        folder = folder.resolve()
        root = folder / "root"
        root.mkdir(parents=True, exist_ok=True)
        nothing = folder / "nothing"
        nothing.touch()
        links = {path: os.readlink(path) for path in _LINKS if Path(path).is_symlink()}  # noqa: PTH115
        spec = {
            "root": str(root),
            "folder": str(folder),
            "shown": self.shown,
            "hidden": self.hidden,
            "nothing": str(nothing),
            "links": links,
            "devices": [path for path in _DEVICES if Path(path).exists()],
            "command": list(command),
            "environment": {
                "PATH": "/usr/bin:/bin",
                "HOME": str(folder),
                "TMPDIR": str(folder),
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
        }
        file = folder / "isolation.json"
        file.write_text(json.dumps(spec))
        return [sys.executable, "-I", "-S", __file__, str(file)]

    def obstacle(self, module: str, folder: Path) -> str:
        """Why no process can be isolated here that imports `module`; "" if one can.

        It starts one, so an environment that is built in an unusual way shows here and not in what the
        process is for. `folder` is for scratch files.
        """
        if not sys.platform.startswith("linux"):
            return "only Linux has namespaces"
        command = self.command([sys.executable, "-P", "-c", f"import {module}"], folder)
        try:
            done = subprocess.run(command, capture_output=True, timeout=_START_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as exc:
            return str(exc)
        if done.returncode == 0:
            return ""
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process ended with status {done.returncode}"


def _shown() -> Iterator[str]:
    """Files and folders that hold Python, its packages and shared libraries, and nothing else."""
    yield from (path for path in _LIBRARIES if not Path(path).is_symlink())
    yield from (sys.prefix, sys.base_prefix, str(Path(sys.executable).parent))
    for place in filter(None, sys.path):
        inside = [p for p in (sys.prefix, sys.base_prefix) if place.startswith(f"{p}/")]
        if not inside and Path(place).is_dir():
            # of another folder, such as a checkout, only what can be imported
            yield from (entry.path for entry in os.scandir(place) if _is_code(entry))


def _is_code(entry: os.DirEntry[str]) -> bool:
    if entry.name.endswith((".py", ".so", ".dist-info", ".egg-info")):
        return True
    return entry.is_dir() and (Path(entry.path) / "__init__.py").exists()


def _changed(place: str, since_s: float) -> Iterator[str]:
    """Files in `place` that were written since then.

    The time of a file's last change cannot be set. It also moves when a link to the file is made, so it does
    not count for files with several links, which package managers share between environments.
    """
    pending = [place]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:  # a single file, or one that may not be read
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                changed = found.st_ctime >= since_s and found.st_nlink == 1
                if changed or found.st_mtime >= since_s:
                    yield entry.path


def _enter(spec: Mapping[str, Any]) -> None:
    """Build the namespaces of `spec` around this process. Raises OSError where they are not to be had."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(name: str, *given: object) -> None:
        if getattr(libc, name)(*given) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{name}: {os.strerror(error)}")

    def mount(source: str, target: str, kind: str | None, flags: int) -> None:
        encoded = None if kind is None else kind.encode()
        call("mount", source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), None)

    def bind(source: str, target: str, read_only: bool) -> None:
        if Path(source).is_dir():
            Path(target).mkdir(parents=True, exist_ok=True)
        else:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(target).touch()
        mount(source, target, None, _BIND | _RECURSIVE)
        if read_only:
            flags = _REMOUNT | _BIND | _READ_ONLY
            try:
                mount(source, target, None, flags)
            except OSError:  # flags of the file system that may not be taken off
                mount(source, target, None, flags | _NO_SUID | _NO_DEVICES)

    user, group = os.getuid(), os.getgid()
    call("unshare", _NEW_NAMESPACES)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    mount("none", "/", None, _RECURSIVE | _PRIVATE)
    root, folder = str(spec["root"]), str(spec["folder"])
    # opened before the folder is covered by the new root
    mount("none", root, "tmpfs", 0)
    for path in spec["shown"]:
        bind(path, root + path, read_only=True)
    for path in spec["hidden"]:
        mount(str(spec["nothing"]), root + path, None, _BIND)
    for path in spec["devices"]:
        bind(path, root + path, read_only=False)
    for path, target in spec["links"].items():
        Path(root + path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, root + path)  # noqa: PTH211
    # not recursive: the new root itself lies in the folder
    Path(root + folder).mkdir(parents=True, exist_ok=True)
    mount(folder, root + folder, None, _BIND)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", _DETACH)
    os.chdir("/")


def _become(spec: Mapping[str, Any]) -> int:
    """Run the command as the first process of the new process namespace; returns its exit status."""
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, _SIGKILL, 0, 0, 0)
        command = [str(part) for part in spec["command"]]
        environment: dict[str, str] = dict(spec["environment"])
        os.execve(command[0], command, environment)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(file: str) -> int:
    """Run the command of the spec in `file`."""
    spec = json.loads(Path(file).read_text())
    try:
        _enter(spec)
    except OSError as exc:
        sys.stderr.write(f"{exc}\n")
        return NOT_ISOLATED
    return _become(spec)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
