"""Opens the artifact store that the operator named."""

from __future__ import annotations

from pathlib import Path

from mainspring.backends.folder import FolderStore
from mainspring.domain.errors import Invalid
from mainspring.ports import ArtifactStore


def open_store(place: str) -> ArtifactStore:
    """A folder, or what a URL such as s3://bucket/prefix names."""
    if "://" not in place:
        return FolderStore(Path(place))
    try:
        from mainspring.backends.objects import ObjectStore
    except ImportError:
        raise Invalid(f"{place}: needs the extra `s3`: pip install 'mainspring[s3]'") from None
    return ObjectStore(place)
