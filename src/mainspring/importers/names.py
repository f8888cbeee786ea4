"""Names of imported jobs: from comments, commands and names of the source, unique within one import."""

from __future__ import annotations

import re
import shlex

MAX_NAME_CHARS = 100
_OTHER = re.compile(r"[^A-Za-z0-9._]+")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_MAX_READ = 2_000
_MAX_WORDS = 5
# Words before the program that is meant.
_WRAPPERS = {
    "cd", "env", "exec", "flock", "ionice", "nice", "nohup", "sudo", "time", "timeout", "chronic", "sh", "bash", "dash",
    "zsh", "python", "python3", "php", "perl", "ruby", "node", "bundle", "npm", "npx", "uv", "run", "root", "test", "[",
    "command", "setsid", "chpst", "su", "ssh", "java", "rbenv", "docker", "compose", "docker-compose", "kubectl",
}  # fmt: skip


class Names:
    """Gives each entry a name that no other entry of the import has."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._counts: dict[str, int] = {}
        self._taken: set[str] = set()

    def take(self, wanted: str, fallback: str = "job") -> str:
        name = self._prefix + (slug(wanted) or slug(fallback) or "job")
        name = name[:MAX_NAME_CHARS]
        candidate, number = name, self._counts.get(name, 1)
        while candidate in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._counts[name] = number
        self._taken.add(candidate)
        return candidate


def slug(text: str) -> str:
    """A text as a job name: letters, digits, '.', '_' and '-'."""
    return _OTHER.sub("-", text[:_MAX_READ]).strip("-._")[:MAX_NAME_CHARS]


def name_of_comment(comment: str) -> str:
    """A short comment as a name; empty if it is a sentence or no text."""
    text = comment.strip(" \t#=-*:.")
    words = text.split()
    return text.lower() if 0 < len(words) <= _MAX_WORDS and slug(text) else ""


def name_of_command(command: str) -> str:
    """The name of the program that a command line runs, without path, extension and wrappers such as nice."""
    for part in re.split(r"&&|\|\||[;|]", command[:_MAX_READ]):
        try:
            words = shlex.split(part)
        except ValueError:
            words = part.split()
        is_target = words[:1] == ["cd"]
        for word in words:
            base = word.rstrip("/").rpartition("/")[2]
            if is_target or word.startswith("-") or _ASSIGNMENT.match(word) or base in _WRAPPERS or base[:1].isdigit():
                continue
            if found := slug(re.sub(r"\.(?:sh|py|pl|rb|php|js|jar|bash)\Z", "", base)):
                return found
    return "job"
