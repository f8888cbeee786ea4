from __future__ import annotations

import json
from uuid import UUID

from mainspring import wire
from tests.support.invoke import Invoke
from tests.support.scripted_server import T0, Reply, Scripted

SESSION_ID = UUID("0192f0c1-2345-4678-9abc-def012345678")
SESSION = wire.BrowserSession(
    session_id=SESSION_ID,
    token_id=SESSION_ID,
    token="admin",
    created_at=T0,
    seen_at=T0,
    expires_at=T0,
    address="192.0.2.1",
    user_agent="Lynx\x1b[2J",
)


def test_sessions_are_listed_without_control_characters(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/browser-sessions", Reply(wire.Page(items=[SESSION])))
    shown = invoke("browser-sessions", "list", "-o", "wide").stdout
    assert str(SESSION_ID) in shown and "192.0.2.1" in shown and "admin" in shown and "\x1b" not in shown
    (item,) = json.loads(invoke("browser-sessions", "list", "-o", "json").stdout)["items"]
    assert item["address"] == "192.0.2.1"


def test_one_or_all_are_ended(server: Scripted, invoke: Invoke) -> None:
    server.on("DELETE", f"/api/v1/browser-sessions/{SESSION_ID}", Reply(None, 204))
    server.on("DELETE", "/api/v1/browser-sessions", Reply(wire.EndedSessions(ended=2)))
    assert invoke("browser-sessions", "end", str(SESSION_ID)).stderr == f"ended {SESSION_ID}\n"
    assert invoke("browser-sessions", "end", "--all").stderr == "ended 2 browser sessions\n"
    for words in ((), (str(SESSION_ID), "--all")):
        assert invoke("browser-sessions", "end", *words).exit_code == 2
