"""Plays scheduler and kubelet of one node for a real API server: runs the commands of pods as processes of the test.

It resolves the environment as a kubelet does, from Secrets too, serves logs with timestamps, and ends processes with
SIGTERM and SIGKILL. Images that begin with `missing` can't be pulled; pods with a node selector find no node. Tests let
the rest happen with `fail`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2

from tests.support.certificates import make_certificate
from tests.support.kubernetes_server import KubernetesServer

NODE = "test-node"
_VARIABLE = re.compile(r"\$\$|\$\(([^)]*)\)")


class RunningPod:
    """The process of one pod and its log."""

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self.lines: list[bytes] = []  # each with its timestamp
        self.more = asyncio.Event()
        self.ended = False
        self.forced = False  # the test has said how it ended
        self.task: asyncio.Task[None] | None = None

    def add(self, text: bytes) -> None:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
        self.lines.append(stamp + b" " + text)
        self.wake()

    def end(self) -> None:
        self.ended = True
        self.wake()

    def wake(self) -> None:
        self.more.set()
        self.more = asyncio.Event()


class Kubelet:
    """One node in one namespace."""

    def __init__(self, server: KubernetesServer, namespace: str, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._secrets_path = f"/api/v1/namespaces/{namespace}/secrets"
        self.pods: dict[str, RunningPod] = {}  # by uid
        self.seen: list[dict[str, Any]] = []  # every pod, as it was created
        self.log_requests: list[dict[str, list[str]]] = []
        self.cut_logs: list[int] = []  # after how many lines the next log connections are cut
        self.holds = False  # new pods are not scheduled
        self._tasks: set[asyncio.Task[Any]] = set()
        self._logs: asyncio.Server | None = None

    async def start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        key, certificate = make_certificate(self._folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._logs = await asyncio.start_server(self._serve_log, "127.0.0.1", 0, ssl=context)
        port = self._logs.sockets[0].getsockname()[1]
        with suppress(AssertionError):
            await self._server.request("DELETE", f"/api/v1/nodes/{NODE}")
        await self._server.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }
        await self._server.request("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": status})
        self._spawn(self._watch())

    async def stop(self) -> None:
        for pod in self.pods.values():
            _kill(pod, signal.SIGKILL)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._logs is not None:
            self._logs.close()

    def running(self, uid: str) -> bool:
        pod = self.pods.get(uid)
        return pod is not None and pod.process is not None and pod.process.returncode is None

    async def fail(self, name: str, *, container: dict[str, Any] | None = None, **status: Any) -> None:
        """Say how a pod ended, and end its process: `container` is the terminated state."""
        pod = await self._server.request("GET", f"{self._pods_path}/{name}")
        if (mine := self.pods.get(pod["metadata"]["uid"])) is not None:
            mine.forced = True
            _kill(mine, signal.SIGKILL)
        if container is not None:
            status["containerStatuses"] = [_container_status({"terminated": _instants() | container})]
        await self._patch(name, {"phase": "Failed", **status})

    async def _watch(self) -> None:
        while True:
            with suppress(httpx2.HTTPError):  # the server restarts
                await self._watch_once()
            await self._server.ready()

    async def _watch_once(self) -> None:
        listed = await self._server.request("GET", self._pods_path)
        for pod in listed["items"]:
            self._look(pod)
        query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        async with self._server.client.stream("GET", self._pods_path, params=query, timeout=None) as answer:
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if event["type"] == "ADDED":
                    self.seen.append(event["object"])
                if event["type"] in ("ADDED", "MODIFIED"):
                    self._look(event["object"])

    def release(self) -> None:
        """Schedule the pods that were held."""
        self.holds = False
        self._spawn(self._look_again())

    async def _look_again(self) -> None:
        for pod in (await self._server.request("GET", self._pods_path))["items"]:
            self._look(pod)

    def _look(self, pod: dict[str, Any]) -> None:
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        if not pod["spec"].get("nodeName"):
            if self.holds:
                return
            if "nodeSelector" in pod["spec"]:
                if not pod["status"].get("conditions"):
                    message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
                    condition = {
                        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                    }  # fmt: skip
                    self._spawn(self._patch(name, {"conditions": [condition]}))
                return
            self._spawn(self._bind(name))
        elif uid not in self.pods and pod["status"].get("phase") == "Pending":
            mine = self.pods[uid] = RunningPod()
            mine.task = self._spawn(self._run(pod, mine))
        elif "deletionTimestamp" in pod["metadata"] and (found := self.pods.get(uid)) is not None:
            self._spawn(self._delete(pod, found))

    async def _bind(self, name: str) -> None:
        with suppress(AssertionError):  # it was bound before
            await self._server.request(
                "POST", f"{self._pods_path}/{name}/binding", {
                    "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
                },
            )  # fmt: skip

    async def _run(self, pod: dict[str, Any], mine: RunningPod) -> None:
        name, (container,) = pod["metadata"]["name"], pod["spec"]["containers"]
        if container["image"].startswith(("missing", "Invalid")):
            reason = "ErrImagePull" if container["image"].startswith("missing") else "InvalidImageName"
            waiting = {"reason": reason, "message": "manifest unknown"}
            await self._patch(name, {"containerStatuses": [_container_status({"waiting": waiting})]})
            return
        env = await self._environment(container)
        words = [_expanded(word, env) for word in (*container.get("command", ()), *container.get("args", ()))]
        mine.process = await asyncio.create_subprocess_exec(
            *words, env=env | {"PATH": os.environ["PATH"]}, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        status = {"phase": "Running", "containerStatuses": [_container_status({"running": {"startedAt": _now()}})]}
        await self._patch(name, {**status, "startTime": _now()})
        ending = asyncio.create_task(_end_with_first(mine.process))
        assert mine.process.stdout is not None
        async for line in mine.process.stdout:
            mine.add(line)
        code = await ending
        mine.end()
        if not mine.forced:
            await self._patch(name, self._ended(mine, code))

    def _ended(self, mine: RunningPod, code: int) -> dict[str, Any]:
        code = 128 - code if code < 0 else code
        ended = {"exitCode": code, "reason": "Error" if code else "Completed", **_instants()}
        if code:
            tail = b"".join(line.partition(b" ")[2] for line in mine.lines[-80:])[-2048:]
            ended["message"] = tail.decode("utf-8", "replace")
        phase = "Failed" if code else "Succeeded"
        return {"phase": phase, "containerStatuses": [_container_status({"terminated": ended})]}

    async def _delete(self, pod: dict[str, Any], mine: RunningPod) -> None:
        grace_s = pod["metadata"].get("deletionGracePeriodSeconds", 30)
        if not mine.ended and mine.process is not None:
            _kill(mine, signal.SIGTERM)
            with suppress(TimeoutError):
                await asyncio.wait_for(mine.process.wait(), grace_s)
            _kill(mine, signal.SIGKILL)
        if mine.task is not None:
            await asyncio.wait({mine.task})
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        with suppress(AssertionError):
            await self._server.request("DELETE", f"{self._pods_path}/{pod['metadata']['name']}", body)

    async def _environment(self, container: dict[str, Any]) -> dict[str, str]:
        env: dict[str, str] = {}
        for variable in container.get("env", ()):
            if "value" in variable:
                env[variable["name"]] = _expanded(variable["value"], env)
                continue
            reference = variable["valueFrom"]["secretKeyRef"]
            secret = await self._server.request("GET", f"{self._secrets_path}/{reference['name']}")
            env[variable["name"]] = base64.b64decode(secret["data"][reference["key"]]).decode()
        return env

    async def _patch(self, name: str, status: dict[str, Any]) -> None:
        with suppress(AssertionError):  # it is gone
            await self._server.request("PATCH", f"{self._pods_path}/{name}/status", {"status": status})

    async def _serve_log(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            url = urlsplit(head.split()[1])
            query = parse_qs(url.query)
            self.log_requests.append(query)
            name = url.path.split("/")[3]
            pod = await self._server.request("GET", f"{self._pods_path}/{name}")
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n")
            await self._send_log(self.pods[pod["metadata"]["uid"]], query, writer)
        writer.close()

    async def _send_log(self, pod: RunningPod, query: dict[str, list[str]], writer: asyncio.StreamWriter) -> None:
        since = query.get("sinceTime", [""])[0].rstrip("Z").encode()
        cut = self.cut_logs.pop(0) if self.cut_logs else 0
        sent = 0
        while True:
            more = pod.more
            ended = pod.ended
            for line in pod.lines[sent:]:
                sent += 1
                if line >= since:
                    writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                    await writer.drain()
                    if sent == cut:
                        return
            if ended:
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return
            await more.wait()

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _end_with_first(process: asyncio.subprocess.Process) -> int:
    """Wait for the first process of a container; all others end with it."""
    code = await process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return code


def _kill(pod: RunningPod, number: int) -> None:
    if pod.process is not None and pod.process.returncode is None:
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(pod.process.pid, number)
            else:  # only the first process of a container gets it
                os.kill(pod.process.pid, number)


def _expanded(text: str, env: dict[str, str]) -> str:
    """Insert variables as Kubernetes does: `$(NAME)`, and `$$` for a dollar sign."""
    return _VARIABLE.sub(lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


def _container_status(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "job", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _instants() -> dict[str, str]:
    return {"startedAt": _now(), "finishedAt": _now()}
