"""Opens the configured artifact store."""

from __future__ import annotations

from pathlib import Path

from mainspring.backends.folder import FolderStore
from mainspring.domain.errors import Invalid
from mainspring.ports import ArtifactStore


def open_store(place: str) -> ArtifactStore:
    """Open a folder, or an object store by a URL such as s3://bucket/prefix."""
    if "://" not in place:
        return FolderStore(Path(place))
    try:
        from mainspring.backends.objects import ObjectStore
    except ImportError:
        raise Invalid(f"{place} needs the extra `s3`: pip install 'mainspring[s3]'") from None
    return ObjectStore(place)
