#!/bin/sh
# Rewrite the four lock files: pinned versions with hashes, for every platform and Python >= 3.11.
set -eu
cd "$(dirname "$0")/.."

"${PYTHON:-python3}" -m venv .cache/lock
.cache/lock/bin/python -m pip --disable-pip-version-check install --quiet --upgrade uv
compile() {
    .cache/lock/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
        --no-header --no-annotate "$@" >/dev/null
}
# The widest set is resolved first and constrains the others, so that all agree on every version.
compile pyproject.toml --group dev --group build -o requirements-dev.lock
compile pyproject.toml -c requirements-dev.lock -o requirements.lock
# What the image has: the optional packages of engines and stores, without pyarrow, which is as large as all others.
compile pyproject.toml --extra apprise --extra kafka --extra kubernetes --extra otel --extra redis \
    --extra s3 --extra zookeeper -c requirements-dev.lock -o requirements-image.lock
compile --group build -c requirements-dev.lock -o requirements-build.lock
