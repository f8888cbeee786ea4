"""What a token grants: queues, labels and task kinds. Pure.

Workers register for what their token grants. A user's token with grants can change and run only the jobs of its queues
and labels.

A grant is a name (`short`, `zone=eu`) or a prefix that ends in `*` (`gpu-*`, `zone=*`); `*` alone grants everything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mainspring.domain.errors import Problem

ANY = "*"
MAX_GRANTS = 100
DETECTED = "sandbox/"
"""Labels with this prefix name the sandbox features that a worker has found on its machine. They need no grant: a
worker that may take a queue's jobs decides how it runs them."""

_QUEUE = re.compile(r"\A(?:[a-z0-9][a-z0-9_-]{0,62})?\*?\Z")
_LABEL = re.compile(r"\A(?:[A-Za-z0-9][A-Za-z0-9._/-]{0,62}(?:=[^*,]{0,128})?)?\*?\Z")
_KIND = re.compile(r"\A(?:[a-z0-9][a-z0-9._-]{0,62})?\*?\Z")


@dataclass(frozen=True, slots=True)
class WorkerGrants:
    """The grants of one token. No queues: it can register for nothing."""

    queues: Sequence[str]
    labels: Sequence[str] = ()
    kinds: Sequence[str] = (ANY,)

    def refusals(
        self, queues: Sequence[str], labels: Mapping[str, str] | None = None, kinds: Sequence[str] = ()
    ) -> Iterator[Problem]:
        """Yield what a registration asks for and the token does not grant."""
        for at, queue in enumerate(queues):
            if not _granted(queue, self.queues):
                yield _refusal(f"/queues/{at}", "queue", queue, self.queues, f"--queue {queue}")
        for name, value in (labels or {}).items():
            label = f"{name}={value}"
            if not name.startswith(DETECTED) and not _granted(label, self.labels):
                yield _refusal(f"/labels/{name}", "label", label, self.labels, f"--label {label}")
        for at, kind in enumerate(kinds):
            if not _granted(kind, self.kinds):
                yield _refusal(f"/kinds/{at}", "task kind", kind, self.kinds, f"--kind {kind}")

    @property
    def includes_every_job(self) -> bool:
        """Whether no job is outside of the queues and labels granted."""
        return ANY in self.queues and (not self.labels or ANY in self.labels)

    def job_refusals(self, queue: str, labels: Mapping[str, str]) -> Iterator[Problem]:
        """Yield why a job is outside of the queues and labels granted.

        With labels, the job must require at least one, and none that is not granted: else it could run on any worker.
        """
        if not _granted(queue, self.queues):
            yield _outside("/queue", "queue", queue, self.queues)
        required = [f"{name}={value}" for name, value in labels.items()]
        if self.labels and not required:
            yield _outside("/labels", "label", "none", self.labels)
        for label in required if self.labels else ():
            if not _granted(label, self.labels):
                yield _outside("/labels", "label", label, self.labels)

    def exceeding(self, held: WorkerGrants) -> Iterator[Problem]:
        """Yield the grants that a caller with the grants `held` does not have and so cannot pass on."""
        for field, asked, own in (
            ("queues", self.queues, held.queues),
            ("labels", self.labels or (ANY,), held.labels or (ANY,)),
            ("kinds", self.kinds, held.kinds),
        ):
            for at, grant in enumerate(asked):
                if not any(_contains(have, grant) for have in own):
                    message = f"your token does not grant {grant!r} (granted: {', '.join(own) or 'none'})"
                    yield Problem(f"/{field}/{at}", message, "grant what you have, or ask an administrator")

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the grants of a new token."""
        if not self.queues:
            yield Problem("/queues", "a token for workers names its queues", "such as short; * for every queue")
        for field, given, pattern, example in (
            ("queues", self.queues, _QUEUE, "short, or gpu-* for every queue with this prefix"),
            ("labels", self.labels, _LABEL, "zone=eu, or zone=* for every value"),
            ("kinds", self.kinds, _KIND, "shell, or * for every kind"),
        ):
            if len(given) > MAX_GRANTS:
                yield Problem(
                    f"/{field}", f"at most {MAX_GRANTS} {field} can be granted", "use prefixes, such as gpu-*"
                )
            for at, grant in enumerate(given[:MAX_GRANTS]):
                if not grant or not pattern.match(grant):
                    yield Problem(f"/{field}/{at}", f"{grant!r} can't be granted", f"for example {example}")


EVERYTHING = WorkerGrants((ANY,), (ANY,))


def _granted(name: str, grants: Collection[str]) -> bool:
    return any(name.startswith(grant[:-1]) if grant.endswith(ANY) else name == grant for grant in grants)


def _contains(wider: str, grant: str) -> bool:
    """Whether everything that `grant` matches is matched by `wider`."""
    return grant.startswith(wider[:-1]) if wider.endswith(ANY) else grant == wider


def _outside(pointer: str, noun: str, name: str, grants: Sequence[str]) -> Problem:
    message = f"this token is restricted to jobs of the {noun} {', '.join(grants)}; the job has {name}"
    return Problem(pointer, message, "use a token that grants it")


def _refusal(pointer: str, noun: str, name: str, grants: Sequence[str], option: str) -> Problem:
    given = ", ".join(grants) or "none"
    return Problem(
        pointer,
        f"this token does not grant the {noun} {name!r} (granted: {given})",
        f"ask an administrator for a token: mainspring workers token NAME {option}",
    )
