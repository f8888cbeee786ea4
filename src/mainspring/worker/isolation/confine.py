"""Becomes a program under limits: joins control groups, lowers its own limits, gives up new privileges, executes.

Started as a script of its own, `confine.py SETTINGS PROGRAM ARGUMENT...`, between the worker and the program, because a
worker with threads must not run code of its own between fork and exec. Only the standard library, for a quick start.
"""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_NO_NEW_PRIVS = 38
CPU_GRACE_S = 2


def main() -> None:
    settings, argv = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        for door in settings["doors"]:
            with open(door, "w") as file:
                file.write("0")
        for name, value in settings["rlimits"].items():
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # Over the soft limit of cpu it gets SIGXCPU, which tells why; over the hard one SIGKILL, which does not.
            resource.setrlimit(which, (value, value + CPU_GRACE_S if name == "CPU" else value))
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
    except OSError as error:
        sys.exit(f"mainspring: the sandbox can't be set up: {error}")
    for number in (signal.SIGXFSZ, signal.SIGPIPE):  # Python ignores them, and the program would go on ignoring
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"mainspring: {argv[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
