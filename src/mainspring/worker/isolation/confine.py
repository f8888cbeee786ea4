"""Applies a sandbox's limits to itself and then becomes the program.

Started as a script, `confine.py SETTINGS PROGRAM ARGUMENT...`: a worker with threads must not run its own code between
fork and exec. It joins cgroups, lowers its rlimits and gives up new privileges. Uses only the standard library, for a
quick start.
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
        for procs_file in settings["procs_files"]:
            with open(procs_file, "w") as file:
                file.write("0")
        for name, value in settings["rlimits"].items():
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # Over the soft CPU limit the kernel sends SIGXCPU, which shows the cause; over the hard one SIGKILL.
            resource.setrlimit(which, (value, value + CPU_GRACE_S if name == "CPU" else value))
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs")
    except OSError as error:
        sys.exit(f"mainspring: cannot set up the sandbox: {error}")
    for number in (signal.SIGXFSZ, signal.SIGPIPE):  # Python ignores these, and the program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        print(f"mainspring: {argv[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
