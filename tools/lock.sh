#!/bin/sh
# Rewrite the three lock files: pinned versions with hashes, for every platform and Python >= 3.11.
set -eu
cd "$(dirname "$0")/.."

"${PYTHON:-python3}" -m venv .cache/lock
.cache/lock/bin/python -m pip --disable-pip-version-check install --quiet --upgrade uv
compile() {
    .cache/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate "$@" >/dev/null
}
# The widest set is resolved first and constrains the other two, so that all three agree on every version.
compile pyproject.toml --group dev --group build -o requirements-dev.lock
compile pyproject.toml -c requirements-dev.lock -o requirements.lock
compile --group build -c requirements-dev.lock -o requirements-build.lock
