from __future__ import annotations

from typing import Any

import pytest

pytest_plugins = ("tools.requirement_plugin",)


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Async tests get the event loop that production uses."""
    return "asyncio", {"use_uvloop": True}
