"""The JSON Schema of manifests: published, current, and in agreement with what is accepted."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import msgspec
import pytest

from mainspring.manifest import KINDS
from mainspring.manifest.schema import schema
from tests.conftest import Cluster
from tools.manifest_schema import DOCUMENT, text


def spec_of(kind: str) -> dict[str, Any]:
    """The schema of the spec of a kind."""
    found = [one["then"] for one in schema()["allOf"] if one["if"]["properties"]["kind"]["const"] == kind]
    spec: dict[str, Any] = found[0]["properties"]["spec"]
    return spec


def test_the_published_schema_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == text(), "run `python -m tools.manifest_schema` and commit the result"


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_has_every_field_and_no_other(kind: str) -> None:
    fields = {f.encode_name for f in msgspec.structs.fields(KINDS[kind].type)} - {"name", "metadata"}
    short = {"shell", "http", "python", "container", "args"} if kind == "Job" else set()
    spec = spec_of(kind)
    assert set(spec["properties"]) == fields | short
    assert spec["additionalProperties"] is False


def test_every_reference_of_the_schema_exists() -> None:
    document = schema()
    references = {part.split('"')[0] for part in json.dumps(document).split('"#/$defs/')[1:]}
    assert references <= set(document["$defs"])
    assert {"ShellTask", "Step", "ScheduleSpec"} <= references


@pytest.mark.anyio
async def test_the_server_offers_the_schema(cluster: Cluster) -> None:
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with httpx2.AsyncClient(base_url=cluster.url, headers=headers, trust_env=False) as http:
        answer = await http.get("/api/manifest.schema.json")
    assert answer.headers["content-type"] == "application/schema+json"
    assert answer.json() == json.loads(text())
