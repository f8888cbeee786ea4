"""The services of deploy/compose.yaml as words of `podman run`; and PostgreSQL as its image on Docker Hub behaves.

All containers share one network namespace without a way out, where each service name means 127.0.0.1. So a service has
one replica, and ports that collide are set by the test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.host_image import PACKAGES
from tools.tree import ROOT

FILE = ROOT / "deploy" / "compose.yaml"
POSTGRES_PACKAGES = (*PACKAGES, "postgresql-15", "util-linux")
ENTRYPOINT = """#!/bin/bash
# As docker-entrypoint.sh of the image `postgres`: the secret is read as root, then everything runs as a user (34).
set -eu
data=/var/lib/postgresql/data
if [ "$(id -u)" = 0 ]; then
    export POSTGRES_PASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")" PATH="/usr/lib/postgresql/15/bin:$PATH"
    mkdir -p $data /var/run/postgresql
    chown -R 34:34 $data /var/run/postgresql
    exec setpriv --reuid=34 --regid=34 --clear-groups "$0" "$@"
fi
if [ ! -s $data/PG_VERSION ]; then
    initdb -D $data -U "$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") --auth-local=trust
    echo "host all all all scram-sha-256" >> $data/pg_hba.conf
    pg_ctl -D $data -w -o "-c listen_addresses=''" start
    createdb -U "$POSTGRES_USER" "$POSTGRES_USER"
    pg_ctl -D $data -m fast -w stop
fi
exec postgres -D $data -c listen_addresses='*' "$@"
"""
POSTGRES_FILES = {"usr/local/bin/entrypoint": ENTRYPOINT}
IGNORED = {"image", "build", "restart", "deploy", "depends_on", "command", "stop_grace_period"}
"""What `podman run` needs no word for: limits need control groups, which are not delegated everywhere."""


def content() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def options(service: dict[str, Any], top: dict[str, Any], secrets: Path) -> list[str]:
    """The words before the image; an unknown key is an error, so that no part of the file stays untried."""
    words: list[str] = []
    for key, value in service.items():
        match key:
            case "read_only":
                words += ["--read-only"] if value else []
            case "tmpfs":
                words += [word for path in value for word in ("--tmpfs", path)]
            case "cap_drop":
                words += [word for name in value for word in ("--cap-drop", name.lower())]
            case "security_opt":
                words += [word for name in value for word in ("--security-opt", name.removesuffix(":true"))]
            case "environment":
                words += [word for name, text in value.items() for word in ("--env", f"{name}={text}")]
            case "volumes":
                words += [word for volume in value for word in ("--volume", volume)]
            case "shm_size":
                words += ["--shm-size", value]
            case "healthcheck":
                words += ["--health-cmd", " ".join(value["test"][1:])]
            case "secrets":
                for name in value:
                    file = secrets / Path(top["secrets"][name]["file"]).name
                    words += ["--volume", f"{file}:/run/secrets/{name}:ro"]
            case _:
                assert key in IGNORED, f"a key of the compose file that this test does not know: {key}"
    return words
