"""A kind of task that another package adds: counts the words of a text.

Installed beside Mainspring, a worker offers it; a job asks for it with

    {"kind": "plugin", "type": "word-count", "settings": {"text": "{{params.text}}", "least": 3}}
"""

from __future__ import annotations

from typing import Any, ClassVar

from mainspring.worker.executors import Done, Work


class WordCount:
    """Succeeds with the number of words that have at least `least` letters."""

    schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to count"},
            "least": {"type": "integer", "minimum": 1},
        },
        "required": ["text"],
        "additionalProperties": False,
    }

    async def execute(self, work: Work) -> Done:
        settings = work.settings
        words = [word for word in settings["text"].split() if len(word) >= settings.get("least", 1)]
        work.output.write("stdout", f"{len(words)} words\n".encode())
        return Done("succeeded", result={"words": len(words)})
