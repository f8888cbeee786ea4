"""What a pod task may ask for: the schema, the forms, and the allow-list of the operator."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mainspring.domain.errors import Invalid
from mainspring.domain.json_schema import problems, schema_problem
from mainspring.worker.executors.pods.settings import SCHEMA, AllowList, PodSettings, settings_problems


def pointers(given: dict[str, Any], *allow: str) -> list[str]:
    settings = msgspec.convert({"image": "busybox:1.36"} | given, PodSettings, strict=False)
    return [problem.pointer for problem in settings_problems(settings, AllowList(allow))]


def test_the_schema_is_supported_and_has_every_setting() -> None:
    assert schema_problem(SCHEMA) is None
    assert set(SCHEMA["properties"]) == {field.name for field in msgspec.structs.fields(PodSettings)}
    volume = SCHEMA["properties"]["volumes"]["items"]["properties"]
    assert (
        list(problems({"image": "a", "volumes": [{"mount": "/x", **dict.fromkeys(["claim"], "c")}]}, SCHEMA, "")) == []
    )
    assert set(volume) >= {"mount", "claim", "host_path"}


@pytest.mark.parametrize(
    "given",
    [
        {"hostNetwork": True},
        {"host_pid": True},
        {"containers": []},
        {"init_containers": []},
        {"volumes": [{"mount": "/x", "hostPath": {"path": "/"}}]},
        {"volumes": [{"mount": "/x", "nfs": "server"}]},
        {"securityContext": {"privileged": True}},
        {"namespace": "kube-system"},
        {"node_name": "master"},
    ],
)
def test_what_is_not_a_setting_is_refused(given: dict[str, Any]) -> None:
    assert [p.pointer for p in problems({"image": "a"} | given, SCHEMA, "/settings")]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"image": "a"} | given, PodSettings, strict=False)


ESCAPES: list[tuple[dict[str, Any], str]] = [
    ({"privileged": True}, "privileged"),
    ({"host_network": True}, "host-network"),
    ({"volumes": [{"mount": "/x", "host_path": "/etc"}]}, "host-path=/etc"),
    ({"volumes": [{"mount": "/x", "claim": "shared"}]}, "claim=shared"),
    ({"volumes": [{"mount": "/x", "secret": "other"}]}, "secret=other"),
    ({"volumes": [{"mount": "/x", "config_map": "other"}]}, "config-map=oth*"),
    ({"service_account": "admin"}, "service-account=admin"),
    ({"capabilities": ["SYS_ADMIN"]}, "capability=SYS_ADMIN"),
    ({"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]}, "toleration=node-role.*"),
    ({"priority_class": "system-node-critical"}, "priority-class=system-*"),
    ({"runtime_class": "plain"}, "runtime-class=plain"),
    ({"image_pull_secrets": ["registry"]}, "pull-secret=registry"),
]


@pytest.mark.parametrize(("given", "entry"), ESCAPES, ids=[entry for _, entry in ESCAPES])
def test_everything_that_reaches_out_of_the_pod_needs_the_operator(given: dict[str, Any], entry: str) -> None:
    assert len(pointers(given)) == 1
    assert pointers(given, entry) == []
    assert len(pointers(given, *(other for _, other in ESCAPES if other != entry))) == 1


def test_an_operator_can_limit_the_images() -> None:
    assert pointers({"image": "evil/miner:1"}, "image=ghcr.io/me/*") == ["/settings/image"]
    assert pointers({"image": "ghcr.io/me/etl:3"}, "image=ghcr.io/me/*") == []


@pytest.mark.parametrize("path", ["etc", "/", "//etc", "/data/../etc", "/data/./x", "/data/", "", "/data//x"], ids=repr)
def test_a_folder_of_the_node_has_no_second_spelling(path: str) -> None:
    """`/data/../etc` begins with `/data/`, and would pass a prefix."""
    given = {"volumes": [{"mount": "/x", "host_path": path}]}
    assert "/settings/volumes/0/host_path" in pointers(given, "host-path=*")


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"image": "-x"}, "image"),
        ({"env": {"MAINSPRING_TOKEN": "x"}}, "env"),
        ({"env": {"a=b": "x"}}, "env"),
        ({"workdir": "srv"}, "workdir"),
        ({"node_selector": {"a b": "c"}}, "node_selector"),
        ({"start_timeout": "soon"}, "start_timeout"),
        ({"start_timeout": "2d"}, "start_timeout"),
        ({"grace": "2h"}, "grace"),
        ({"gpu_resource": "a b"}, "gpu_resource"),
        ({"args": ["a\0b"]}, ""),
        ({"args": ["a" * 300_000, "a" * 300_000]}, ""),
        ({"env": {f"A{n}": "" for n in range(501)}}, "env"),
        ({"volumes": [{"mount": "/x"}]}, "volumes/0"),
        ({"volumes": [{"mount": "/x", "scratch": "1Gi"}, {"mount": "/x", "scratch": "1Gi"}]}, "volumes/0/mount"),
        ({"volumes": [{"mount": "/x", "scratch": "much"}]}, "volumes/0/scratch"),
    ],
)
def test_a_problem_names_its_place(given: dict[str, Any], pointer: str) -> None:
    assert f"/settings/{pointer}".rstrip("/") in pointers(given)


@pytest.mark.parametrize(
    "entry", ["", "everything", "claim", "claim=", "claim=a*b", "privileged=yes", "host-network=*"]
)
def test_an_entry_that_says_nothing_stops_the_worker(entry: str) -> None:
    with pytest.raises(Invalid, match="--kube-allow"):
        AllowList((entry,))
