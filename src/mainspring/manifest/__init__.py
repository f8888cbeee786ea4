"""YAML manifests of jobs, workflows and settings: strict reading with line and column, lossless writing.

The browser's editors, the CLI and the API read manifests with this code.
"""

from __future__ import annotations

from mainspring.manifest.kinds import KINDS, STORED, Kind
from mainspring.manifest.needs import JobManifest, Need
from mainspring.manifest.position import LocatedProblem, locate, located_in, places_of
from mainspring.manifest.reading import (
    Manifest,
    check,
    in_document,
    job_in,
    manifest_in,
    read_documents,
    read_job,
    read_workflows,
    typed,
    workflows_in,
)
from mainspring.manifest.writing import (
    shortened,
    with_defaults,
    without_defaults,
    write_document,
    write_documents,
    write_job,
    write_workflow,
)
from mainspring.manifest.yaml_text import MOST_BYTES, MOST_DOCUMENTS, MOST_GROWTH, MOST_REPEATED, documents_in

__all__ = [
    "KINDS",
    "MOST_BYTES",
    "MOST_DOCUMENTS",
    "MOST_GROWTH",
    "MOST_REPEATED",
    "STORED",
    "JobManifest",
    "Kind",
    "LocatedProblem",
    "Manifest",
    "Need",
    "check",
    "documents_in",
    "in_document",
    "job_in",
    "locate",
    "located_in",
    "manifest_in",
    "places_of",
    "read_documents",
    "read_job",
    "read_workflows",
    "shortened",
    "typed",
    "with_defaults",
    "without_defaults",
    "workflows_in",
    "write_document",
    "write_documents",
    "write_job",
    "write_workflow",
]
