"""`python -m mainspring.runner FD TARGET...`: started by a worker, talks to it over FD. With `--declare` in place
of FD it only writes what the targets declare to stdout."""

from __future__ import annotations

import os
import socket
import sys


def main() -> None:
    how, *targets = sys.argv[1:]
    # Where the worker was started is where its modules are.
    sys.path[:] = [os.getcwd(), *(entry for entry in sys.path if entry not in ("", os.getcwd()))]
    sys.argv[:] = ["mainspring-runner"]
    if how == "--declare":
        from mainspring.runner.declare import declare

        declare(targets)
    else:
        from mainspring.runner.serve import Serving

        sock = socket.socket(fileno=int(how))
        sock.set_inheritable(False)
        Serving(sock).run(targets)


if __name__ == "__main__":
    main()
