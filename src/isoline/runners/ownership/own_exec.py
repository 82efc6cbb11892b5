"""Note who I am, then become the program: ``python own_exec.py NOTE [--cgroup DIR] -- PROGRAM [ARG ...]``.

Started in its own session by the launcher. The note (pid, group, session, start) is durable before
the program runs, so a killed orchestrator can never leave a server of which nobody knows, not even
one that overwrites its own environment. Where the orchestrator is gone already, or its record, the
program is not started. In the cgroup DIR it is before the program runs, so all of it counts. Uses the
standard library alone and runs with ``-I -S``.
"""

import json
import os
import sys


def main(argv: list[str]) -> int:
    """Write the note and replace this process; returns only when that failed (125 to 127)."""
    note, *rest = argv
    cgroup = ""
    if rest[:1] == ["--cgroup"]:
        _, cgroup, *rest = rest
    separator, *command = rest
    if separator != "--" or not command:
        print("usage: own_exec.py NOTE [--cgroup DIR] -- PROGRAM [ARG ...]", file=sys.stderr)
        return 127
    try:
        with open(note.removesuffix(".child") + ".json", encoding="utf-8") as file:  # noqa: PTH123
            orchestrator = json.load(file)["orchestrator_pid"]
    except (OSError, ValueError, KeyError):
        print("own_exec: no owner record, so nobody wants this program", file=sys.stderr)
        return 125
    if os.getppid() != orchestrator:
        print("own_exec: the orchestrator is gone", file=sys.stderr)
        return 125
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        start_ticks = int(file.read().rpartition(")")[2].split()[19])
    me = {"pid": os.getpid(), "pgid": os.getpgid(0), "sid": os.getsid(0), "start_ticks": start_ticks}
    part = f"{note}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(me, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, note)  # noqa: PTH105
    except OSError as error:
        print(f"own_exec: cannot write {note}: {error.strerror}", file=sys.stderr)
        return 126
    try:
        if cgroup:
            with open(f"{cgroup}/cgroup.procs", "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write(str(os.getpid()))
    except OSError as error:
        print(f"own_exec: cannot enter {cgroup}: {error.strerror}", file=sys.stderr)
        return 126
    try:
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        print(f"own_exec: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
