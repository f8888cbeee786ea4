#!/bin/sh
# Find a Python that is new enough and set up .venv with it. Usage: bootstrap.sh runtime|dev
set -eu
cd "$(dirname "$0")/.."

# Each candidate is executed, not only looked up: shims of version managers are on the PATH but may not start.
for candidate in ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        exec "$candidate" tools/install.py "$@"
    fi
    if [ "$candidate" = "${PYTHON:-}" ]; then
        echo "PYTHON=$PYTHON does not start, or is older than 3.11." >&2
        exit 1
    fi
done

found=$(python3 --version 2>/dev/null || echo "none")
cat >&2 <<MESSAGE
Mainspring needs Python 3.11 or newer; found: $found.
Install one (on Debian or Ubuntu: apt install python3.11 python3.11-venv), or set its path:
    make PYTHON=/path/to/python3.12 dev
MESSAGE
exit 1
