"""Table and details of backfills."""

from __future__ import annotations

from mainspring import wire
from mainspring.cli.output import Column, TableLayout
from mainspring.cli.tables.fields import json_text, pairs
from mainspring.display.times import local


def backfill_progress(backfill: wire.Backfill) -> str:
    """State and progress in one line."""
    decided = backfill.made + backfill.left_out
    parts = [f"{backfill.state}", f"{decided:,} of {backfill.instants:,} fires"]
    parts += [f"{backfill.left_out:,} excluded"] if backfill.left_out else []
    parts += [f"{n:,} {state.replace('_', ' ')}" for state, n in sorted(backfill.executions.items())]
    return " · ".join(parts)


BACKFILLS: TableLayout[wire.Backfill] = TableLayout(
    name=lambda backfill: str(backfill.backfill_id),
    columns=[
        Column("ID", lambda backfill: str(backfill.backfill_id)),
        Column("JOB", lambda backfill: backfill.job, wraps=True),
        Column("STATE", lambda backfill: backfill.state),
        Column("FROM", lambda backfill: local(backfill.from_)),
        Column("TO", lambda backfill: local(backfill.to)),
        Column("DONE", lambda backfill: f"{backfill.made + backfill.left_out:,} of {backfill.instants:,}"),
        Column("REPROCESS", lambda backfill: backfill.reprocess, wide=True),
        Column("ORDER", lambda backfill: backfill.order, wide=True),
        Column("CONCURRENCY", lambda backfill: str(backfill.concurrency), wide=True),
        Column("PRIORITY", lambda backfill: str(backfill.priority), wide=True),
        Column("CREATED", lambda backfill: local(backfill.created_at), wide=True),
        Column("BY", lambda backfill: backfill.created_by, wide=True),
    ],
    empty="no backfills; start one with: mainspring backfill JOB --from TIME",
)


def backfill_details(backfill: wire.Backfill) -> str:
    return pairs(
        ("id", str(backfill.backfill_id)),
        ("job", backfill.job),
        ("progress", backfill_progress(backfill)),
        ("range", f"{local(backfill.from_)} up to {local(backfill.to)}, {backfill.order} first"),
        ("reprocess", backfill.reprocess),
        ("concurrency", f"{backfill.concurrency}, priority {backfill.priority}"),
        ("parameters", json_text(backfill.params)),
        ("created", f"{local(backfill.created_at)} by {backfill.created_by}"),
        ("ended", local(backfill.ended_at) if backfill.ended_at else ""),
    )
