"""Settings of a `pod` task: their JSON Schema, their types, and what a worker's operator allows. Pure.

A job does not write a pod. It writes these settings, and `manifest.py` builds the pod from them: what is not a setting
here can't be part of the pod. Settings that reach out of the pod need an entry in the worker's allow-list.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from mainspring.domain.container import ENV_NAME, IMAGE
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid, Problem

MAX_WORDS, MAX_VARIABLES, MAX_ENTRIES = 1000, 500, 32
MAX_NAME_CHARS, MAX_TEXT_CHARS = 253, 100_000
MAX_GRACE_S, MAX_START_S = 3600.0, 86_400.0
MAX_UID = 2**31 - 1
MAX_CHARS = 500_000
"""Of command, arguments and environment together: the cluster stores at most 1 MiB per object."""
MAX_ALLOWED = 200

NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
"""Of an object: a DNS subdomain."""
NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
LABEL_KEY = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?\Z")
CAPABILITY = re.compile(r"[A-Z][A-Z0-9_]{0,62}\Z")

KINDS = {
    "image": "images with this prefix; without an entry every image is allowed",
    "service-account": "service accounts, whose token the pod then has",
    "claim": "persistent volume claims",
    "config-map": "config maps as volumes",
    "secret": "secrets of the namespace as volumes",
    "host-path": "folders of the node",
    "pull-secret": "secrets with credentials for image registries",
    "toleration": "keys of taints",
    "priority-class": "priority classes",
    "runtime-class": "runtime classes",
    "capability": "Linux capabilities",
    "host-network": "the network of the node",
    "privileged": "privileged containers: full access to the node",
}
"""What `--kube-allow` can name."""
SWITCHES = ("host-network", "privileged")
"""Kinds without a name."""


def _text(description: str, most: int = MAX_NAME_CHARS) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": description}


def _list(description: str, items: dict[str, Any], most: int = MAX_ENTRIES) -> dict[str, Any]:
    return {"type": "array", "maxItems": most, "items": items, "description": description}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _switch(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


_WORD = {"maxLength": MAX_TEXT_CHARS}
"""A text; a template in it may insert a value of any type, which becomes text."""
_DURATION = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "minLength": 1, "maxLength": 40}]}
_TOLERATION = _object(
    {
        "key": _text("key of the taint", 317),
        "value": {"type": "string", "maxLength": 63, "description": "value of the taint; without it, any"},
        "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"], "description": "without it, any"},
    },
    "key",
)
_VOLUME = _object(
    {
        "mount": _text("absolute path in the container", 1000),
        "claim": _text("name of a persistent volume claim; needs claim=NAME in the worker's allow-list"),
        "config_map": _text("name of a config map; needs config-map=NAME"),
        "secret": _text("name of a secret; needs secret=NAME"),
        "host_path": _text("folder of the node; needs host-path=PATH", 1000),
        "scratch": _text("size of an empty folder, such as 1Gi", 40),
        "writable": _switch("claims and folders of the node are mounted read-only without it"),
    },
    "mount",
)
SCHEMA: dict[str, Any] = _object(
    {
        "image": _text("image, such as ghcr.io/me/etl:3", 512),
        "command": _list("replaces the entry point", _WORD, MAX_WORDS),
        "args": _list("arguments", _WORD, MAX_WORDS),
        "env": {"type": "object", "additionalProperties": _WORD, "description": "environment; may contain secrets"},
        "workdir": _text("working directory, an absolute path", 1000),
        "user": {"type": "integer", "minimum": 0, "maximum": MAX_UID, "description": "user id"},
        "group": {"type": "integer", "minimum": 0, "maximum": MAX_UID, "description": "group id"},
        "read_only": _switch("read-only root file system, with 64 MiB in /tmp"),
        "pull": {"enum": ["missing", "always", "never"], "description": "when the image is fetched"},
        "start_timeout": _DURATION | {"description": "how long the pod may wait for a node and its image; 10m"},
        "grace": _DURATION | {"description": "between SIGTERM and SIGKILL at a timeout or cancellation; 10s"},
        "gpu_resource": _text("what the job's resource `gpu` is called in the cluster; nvidia.com/gpu"),
        "node_selector": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
        "tolerations": _list("taints to tolerate; each needs toleration=KEY", _TOLERATION),
        "volumes": _list("volumes", _VOLUME),
        "service_account": _text("service account; needs service-account=NAME"),
        "image_pull_secrets": _list("registry credentials; each needs pull-secret=NAME", _text("name of a secret")),
        "priority_class": _text("priority class; needs priority-class=NAME"),
        "runtime_class": _text("runtime class; needs runtime-class=NAME"),
        "capabilities": _list("capabilities to add; each needs capability=NAME", _text("such as NET_ADMIN", 63)),
        "host_network": _switch("the network of the node; needs host-network"),
        "privileged": _switch("full access to the node; needs privileged"),
    },
    "image",
)


class Toleration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A taint that the pod tolerates."""

    key: str
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class Volume(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A volume and where it is mounted: exactly one source."""

    mount: str
    claim: str | None = None
    config_map: str | None = None
    secret: str | None = None
    host_path: str | None = None
    scratch: str | None = None
    writable: bool = False

    def sources(self) -> list[tuple[str, str]]:
        """The sources that are given, with the names of `KINDS`."""
        given = (
            ("claim", self.claim), ("config-map", self.config_map), ("secret", self.secret),
            ("host-path", self.host_path), ("scratch", self.scratch),
        )  # fmt: skip
        return [(kind, name) for kind, name in given if name is not None]


class PodSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a `pod` task, with their templates filled in. `SCHEMA` describes each."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    workdir: str | None = None
    user: int | None = None
    group: int | None = None
    read_only: bool = False
    pull: Literal["missing", "always", "never"] = "missing"
    start_timeout: str | int | float = "10m"
    grace: str | int | float = "10s"
    gpu_resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    volumes: tuple[Volume, ...] = ()
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    priority_class: str | None = None
    runtime_class: str | None = None
    capabilities: tuple[str, ...] = ()
    host_network: bool = False
    privileged: bool = False

    @property
    def start_s(self) -> float:
        return parse_duration(self.start_timeout)

    @property
    def grace_s(self) -> float:
        return parse_duration(self.grace)


class AllowList:
    """What the operator of a worker lets jobs ask for: `KIND=NAME`, where NAME may end with `*`."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        self._patterns: dict[str, list[str]] = {}
        if len(entries) > MAX_ALLOWED:
            raise Invalid(f"--kube-allow: at most {MAX_ALLOWED} entries, not {len(entries)}")
        for entry in entries:
            kind, equals, pattern = entry.partition("=")
            if kind not in KINDS:
                raise Invalid(f"--kube-allow {entry}: {kind!r} is unknown; use {', '.join(KINDS)}")
            if (kind in SWITCHES) == bool(equals) or (equals and not pattern) or "*" in pattern[:-1]:
                wanted = kind if kind in SWITCHES else f"{kind}=NAME, or a prefix such as {kind}=batch-*"
                raise Invalid(f"--kube-allow {entry}: write {wanted}")
            self._patterns.setdefault(kind, []).append(pattern)

    def allows(self, kind: str, name: str = "") -> bool:
        return any(
            name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
            for pattern in self._patterns.get(kind, ())
        )

    def restricts(self, kind: str) -> bool:
        return kind in self._patterns


def settings_problems(settings: PodSettings, allowed: AllowList) -> list[Problem]:
    """Return what the schema does not catch, and what the worker's operator does not allow."""
    return [
        *_form_problems(settings),
        *_bound_problems(settings),
        *_volume_problems(settings),
        *_refusals(settings, allowed),
    ]


def _form_problems(settings: PodSettings) -> Iterator[Problem]:
    if not IMAGE.match(settings.image):
        yield Problem("/settings/image", f"{settings.image!r} is not an image", "such as busybox:1.36")
    for name in settings.env:
        if not ENV_NAME.match(name) or name.startswith("MAINSPRING_"):
            hint = "letters, digits and '_'; names that begin with MAINSPRING_ are reserved"
            yield Problem("/settings/env", f"{name!r} can't be set", hint)
    if settings.workdir is not None and not settings.workdir.startswith("/"):
        yield Problem("/settings/workdir", f"{settings.workdir!r} is not an absolute path", "such as /srv")
    for key, value in settings.node_selector.items():
        if not LABEL_KEY.match(key) or not LABEL_VALUE.match(value):
            yield Problem("/settings/node_selector", f"{key}={value} is not a label", "such as disktype: ssd")
    for field, name in _object_names(settings):
        if not NAME.match(name):
            yield Problem(f"/settings/{field}", f"{name!r} is not the name of an object", "such as batch-jobs")
    if not LABEL_KEY.match(settings.gpu_resource):
        yield Problem("/settings/gpu_resource", f"{settings.gpu_resource!r} is not a resource", "such as amd.com/gpu")
    for name in settings.capabilities:
        if not CAPABILITY.match(name):
            yield Problem("/settings/capabilities", f"{name!r} is not a capability", "such as NET_ADMIN")
    texts = (*settings.command, *settings.args, *settings.env, *settings.env.values())
    if sum(map(len, texts)) > MAX_CHARS:
        yield Problem("/settings", f"command, args and env have more than {MAX_CHARS:,} characters", "use a volume")
    if any("\0" in text for text in texts):
        yield Problem("/settings", "NUL characters are not allowed", "remove them from command, args and env")


def _object_names(settings: PodSettings) -> Iterator[tuple[str, str]]:
    for field in ("service_account", "priority_class", "runtime_class"):
        if (name := getattr(settings, field)) is not None:
            yield field, name
    yield from (("image_pull_secrets", name) for name in settings.image_pull_secrets)
    for place, volume in enumerate(settings.volumes):
        for kind, name in volume.sources():
            if kind in ("claim", "config-map", "secret"):
                yield f"volumes/{place}/{kind.replace('-', '_')}", name


def _bound_problems(settings: PodSettings) -> Iterator[Problem]:
    for field, most in (("start_timeout", MAX_START_S), ("grace", MAX_GRACE_S)):
        try:
            seconds = parse_duration(getattr(settings, field))
        except ValueError as error:
            yield Problem(f"/settings/{field}", str(error), "such as 90s or 10m")
            continue
        if seconds > most:
            yield Problem(f"/settings/{field}", f"{seconds:g} s is too long", f"at most {most:g} s")
    for field, most_entries in (("env", MAX_VARIABLES), ("node_selector", MAX_ENTRIES)):
        if len(getattr(settings, field)) > most_entries:
            yield Problem(f"/settings/{field}", "it has too many entries", f"at most {most_entries}")


def _volume_problems(settings: PodSettings) -> Iterator[Problem]:
    mounts = [volume.mount for volume in settings.volumes]
    for place, volume in enumerate(settings.volumes):
        at = f"/settings/volumes/{place}"
        if not _is_plain(volume.mount) or ":" in volume.mount or mounts.count(volume.mount) > 1:
            yield Problem(f"{at}/mount", f"{volume.mount!r} can't be a mount point", "an absolute path, used once")
        if len(volume.sources()) != 1:
            yield Problem(at, "a volume has exactly one source", "claim, config_map, secret, host_path or scratch")
        if volume.host_path is not None and not _is_plain(volume.host_path):
            yield Problem(f"{at}/host_path", f"{volume.host_path!r} is not a plain absolute path", "such as /srv/data")
        if volume.scratch is not None and not re.fullmatch(r"[1-9][0-9]{0,9}(?:[KMGT]i)?", volume.scratch):
            yield Problem(f"{at}/scratch", f"{volume.scratch!r} is not a size", "such as 512Mi or 10Gi")


def _is_plain(path: str) -> bool:
    """Whether a path is absolute and has no part such as `..` that leads elsewhere."""
    return path.startswith("/") and not path.startswith("//") and path != "/" and posixpath.normpath(path) == path


def _refusals(settings: PodSettings, allowed: AllowList) -> Iterator[Problem]:
    if allowed.restricts("image") and not allowed.allows("image", settings.image):
        yield _refusal("image", "image", settings.image)
    for field, kind, name in _asked(settings):
        if not allowed.allows(kind, name):
            yield _refusal(field, kind, name)


def _asked(settings: PodSettings) -> Iterator[tuple[str, str, str]]:
    """Yield what needs an entry in the allow-list: the field, the kind and the name."""
    for field in ("service_account", "priority_class", "runtime_class"):
        if (name := getattr(settings, field)) is not None:
            yield field, field.replace("_", "-"), name
    for field, kind, names in (
        ("image_pull_secrets", "pull-secret", settings.image_pull_secrets),
        ("tolerations", "toleration", [toleration.key for toleration in settings.tolerations]),
        ("capabilities", "capability", settings.capabilities),
    ):
        yield from ((field, kind, name) for name in names)
    for place, volume in enumerate(settings.volumes):
        for kind, name in volume.sources():
            if kind != "scratch":
                yield f"volumes/{place}", kind, name
    for kind in SWITCHES:
        if getattr(settings, kind.replace("-", "_")):
            yield kind.replace("-", "_"), kind, ""


def _refusal(field: str, kind: str, name: str) -> Problem:
    entry = f"{kind}={name}" if name else kind
    hint = f"its operator allows it with --kube-allow {entry}"
    return Problem(f"/settings/{field}", f"this worker does not allow {name or kind.replace('-', ' ')}", hint)
