"""Workflows: definitions and their versions."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from mainspring.domain.workflow.spec import WorkflowSpec
from mainspring.wire.jobs import JobState
from mainspring.wire.message import Response


class Workflow(Response):
    """The current version of a workflow; `order` lists each step after those it needs."""

    job_id: UUID
    name: str
    version: int
    state: JobState
    spec: WorkflowSpec
    order: list[str]
    schedule_description: str | None
    next_fire_at: datetime | None
    created_at: datetime
    updated_at: datetime
    updated_by: str


class WorkflowOrder(Response):
    """The result of a dry run: the steps of a valid workflow, each after those it needs."""

    order: list[str]


class WorkflowVersion(Response):
    """One version of a workflow."""

    version: int
    spec: WorkflowSpec
    order: list[str]


class WorkflowChange(Response):
    """One version of a workflow and its difference from the previous one: fields, and steps by name."""

    version: int
    created_at: datetime
    created_by: str
    steps: int
    fields: list[str] = []
    added: list[str] = []
    removed: list[str] = []
    changed: list[str] = []


class WorkflowLine(Response):
    """A workflow in a list."""

    job_id: UUID
    name: str
    version: int
    steps: int
    paused: bool
    updated_at: datetime
