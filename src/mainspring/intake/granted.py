"""Queue and label grants: which jobs a restricted token may change and run.

The grants come with the principal that makes the change. Routes that do not check them refuse restricted tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.domain.errors import Forbidden
from mainspring.domain.job import JobSpec, WorkflowTask
from mainspring.domain.principal import Principal


def check_granted(by: str, *specs: JobSpec) -> None:
    """Refuse jobs outside of the queues and labels that the principal's token grants."""
    if is_restricted(by):
        for spec in specs:
            check_place(by, spec.queue_name, spec.labels, is_workflow=isinstance(spec.task, WorkflowTask))


def check_place(by: str, queue: str, labels: Mapping[str, str], *, is_workflow: bool = False) -> None:
    if not isinstance(by, Principal) or by.grants is None:
        return
    if is_workflow:
        raise Forbidden(
            "a token that is restricted to queues or labels cannot change or run workflows", code="not_granted"
        )
    if refusals := tuple(by.grants.job_refusals(queue, labels)):
        raise Forbidden(f"{refusals[0].message}; {refusals[0].hint}", code="not_granted", problems=refusals)


def is_restricted(by: str) -> bool:
    return isinstance(by, Principal) and by.grants is not None
