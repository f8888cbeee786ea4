"""`mainspring reservations` against a scripted server."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.support.invoke import Invoke
from tests.support.scripted_server import Reply, Scripted

NIGHT: dict[str, Any] = {
    "reservation_id": str(UUID(int=7)), "name": "night", "start_at": "2030-01-01T02:00:00Z",
    "end_at": "2030-01-01T04:00:00Z", "slots": 3, "resources": {"gpu": 1}, "labels": {}, "queue": "reports",
    "job": None, "shared": False, "begun": False, "places": {"w1": 2}, "reason": "",
    "created_at": "2029-12-01T00:00:00Z", "created_by": "somebody", "warnings": ["2 of 3 places are kept"],
}  # fmt: skip
WINDOW = ("--from", "2030-01-01T02:00", "--to", "2030-01-01T04:00")


def test_add_sends_the_window_and_whom_it_is_for(server: Scripted, invoke: Invoke) -> None:
    server.on("POST", "/api/v1/reservations", Reply(NIGHT, 201))
    asked = ("--slots", "3", "--resources", "gpu=1", "--labels", "zone=a", "--for", "queue:reports", "--anyway")
    said = invoke("reservations", "add", "night", *WINDOW, *asked)
    sent = server.last("POST").json()
    assert (sent["name"], sent["slots"], sent["queue"], sent["job"]) == ("night", 3, "reports", None)
    assert (sent["resources"], sent["labels"], sent["anyway"]) == ({"gpu": "1"}, {"zone": "a"}, True)
    assert (sent["start_at"][:16], sent["end_at"][:16]) == ("2030-01-01T02:00", "2030-01-01T04:00")
    assert "night added for queue reports: 2 on w1" in said.stdout
    assert "warning: 2 of 3 places are kept" in said.stderr
    for wrong in ("queue", "worker:x", "job:"):
        refused = invoke("reservations", "add", "night", *WINDOW, "--for", wrong)
        assert refused.exit_code == 2 and "job:NAME, queue:NAME or tenant" in refused.stderr


def test_the_list_shows_where_and_until_when(server: Scripted, invoke: Invoke) -> None:
    server.on("GET", "/api/v1/reservations", Reply({"items": [NIGHT], "next_cursor": None}))
    shown = invoke("reservations", "list").stdout
    for words in ("night", "queue reports", "2/3", "gpu 1", "w1", "starts in"):
        assert words in shown


def test_delete_names_it(server: Scripted, invoke: Invoke) -> None:
    server.on("DELETE", "/api/v1/reservations/night", Reply(None, 204))
    assert "night deleted" in invoke("reservations", "delete", "night").stdout
