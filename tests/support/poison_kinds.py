"""Definitions, requests and output of ten kinds that are made to burn CPU, each to be sent again and again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx2

from tests.support.pages import Page, posted
from tests.support.poison_schedules import REFUSED

PARAMS = {"n": list(range(3000))}
LOOPS = "params.n.all(x, params.n.all(y, params.n.size() > 0 || x == y))"
HIDDEN_LOOPS = "params.n.//\nall(x, params.n.// b\nall(y, params.n.//\nall(z, z > 0)))"
ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
YAML = [ALIASES, "{" * 2500, "- " * 100_000, "a: 1" + ":1" * 50_000]
PLUGIN = {
    "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"type": "string", "pattern": "^(a+)+$"}]}},
    "type": "object",
    "properties": {"text": {"type": "string", "pattern": "^(a|aa)+$"}, "list": {"items": {"$ref": "#/$defs/a"}}},
}
COLOURS = "".join(f"\x1b[{30 + n % 8};1;4m\x1b[4{n % 8}m{n % 10}\x1b[{n % 50}A\r" for n in range(3000)) + "\x1b[" * 3000
COLOURED = {
    "name": "poison-colours",
    "task": {"kind": "shell", "argv": ["for n in 1 2 3 4 5; do printf %s \"$COLOURS\"; done"], "shell": True,
             "env": {"COLOURS": COLOURS}},
    "schedule": {"every": "2s"},
    "retries": {"max": 0},
}  # fmt: skip
COSTLY = {
    "name": "poison-condition",
    "params": {"n": {}},
    "steps": {"a": {"task": {"kind": "noop"}, "when": LOOPS}},
}


class Stranger:
    """Somebody with a token and a signed-in browser who sends poison; answers are checked by the caller."""

    def __init__(self, http: httpx2.AsyncClient, browser: httpx2.AsyncClient, worker: httpx2.AsyncClient) -> None:
        self._http, self._browser, self._worker = http, browser, worker

    def kinds(self) -> dict[str, Callable[[int], Awaitable[httpx2.Response]]]:
        """Send the nth poison of each kind."""
        return {
            "schedule rules": self._rules,
            "roll on a calendar": self._roll,
            "template of blanks": self._blanks,
            "condition": self._condition,
            "YAML in the editor": self._yaml,
            "schema of a plug-in": self._schema,
            "step names with digits": self._digits,
            "output in colours": self._colours,
            "did you mean": self._did_you_mean,
            "huge integers": self._integers,
        }

    async def _job(self, **spec: Any) -> httpx2.Response:
        return await self._http.post("/api/v1/jobs", json={"name": f"poison-{uuid4()}", **spec})

    async def _workflow(self, steps: dict[str, Any]) -> httpx2.Response:
        return await self._http.post("/api/v1/workflows", json={"name": f"poison-{uuid4()}", "steps": steps})

    async def _preview(self, schedule: Any) -> httpx2.Response:
        return await self._http.post("/api/v1/schedules:preview", json={"schedule": schedule, "count": 500})

    async def _rules(self, n: int) -> httpx2.Response:
        found = [schedule for name, schedule in REFUSED.items() if "roll" not in name]
        return await self._preview(found[n % len(found)])

    async def _roll(self, n: int) -> httpx2.Response:
        rolled = {
            "every": "1s",
            "calendar": ("rare", "closed", "many-rules")[n % 3],
            "roll": ("next", "previous")[n % 2],
        }
        return await self._preview(rolled)

    async def _blanks(self, n: int) -> httpx2.Response:
        text = ("{{" + " " * 60_000, "{{ " * 20_000, "{{a" + " " * 60_000 + "}")[n % 3]
        return await self._job(task={"kind": "shell", "argv": ["echo", text]})

    async def _condition(self, n: int) -> httpx2.Response:
        if n % 2:
            return await self._workflow({"a": {"task": {"kind": "noop"}, "when": HIDDEN_LOOPS}})
        return await self._http.post("/api/v1/workflows/poison-condition/run", json={"params": PARAMS})

    async def _yaml(self, n: int) -> httpx2.Response:
        path = ("/workflows/new", "/new.yaml")[n % 2]
        form = posted(Page((await self._browser.get(path)).text))
        return await self._browser.post(path, data=form | {"text": YAML[n % len(YAML)], "do": "review"})

    async def _schema(self, n: int) -> httpx2.Response:
        if n % 2:
            return await self._job(task={"kind": "poison", "text": "a" * 40_000 + "!", "list": ["a" * 40 + "!"] * 500})
        register = {"name": f"poison-{uuid4()}", "host": "h", "version": "1", "slots": 1, "queues": ["poison"]}
        schemas = {"kinds": ["poison"], "schemas": {"poison": PLUGIN}}
        return await self._worker.post("/api/v1/worker/sessions", json=register | schemas)

    async def _digits(self, n: int) -> httpx2.Response:
        names = [f"{'1' * 23}{k}" if n % 2 else f"a{'1' * 60}{k}" for k in range(300)]
        return await self._workflow({name: {"task": {"kind": "noop"}, "needs": [f"{name}2"]} for name in names})

    async def _colours(self, n: int) -> httpx2.Response:
        answer = await self._http.get("/api/v1/executions", params={"job": "poison-colours", "limit": "2"})
        items = answer.json().get("items", [])
        if not items:
            return answer
        return await self._browser.get(f"/executions/{items[-1]['execution_id']}/output")

    async def _did_you_mean(self, n: int) -> httpx2.Response:
        return await self._job(task={"kind": "noop"}, **{f"shedule{'e' * 2000}{k}": 1 for k in range(300)})

    async def _integers(self, n: int) -> httpx2.Response:
        raw = [b'{"name": ' + b"9" * 5000 + b"}", b'{"priority": 1e400}', b"[" + b"9" * 200_000 + b"]"][n % 3]
        return await self._http.post("/api/v1/jobs", content=raw)
