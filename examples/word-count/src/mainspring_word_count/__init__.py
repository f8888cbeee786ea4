"""A plug-in: the task kind `word-count`, which counts the words of a text.

A worker offers it when the package is installed beside Mainspring. A job uses it with

    {"kind": "plugin", "type": "word-count", "settings": {"text": "{{params.text}}", "least": 3}}
"""

from __future__ import annotations

from typing import Any, ClassVar

from mainspring.worker.executors import Done, Work


class WordCount:
    """Count the words that have at least `least` letters."""

    schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "the text"},
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
