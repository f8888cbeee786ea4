"""`mainspring validate`, `diff`, `apply`, `export` and `schema`: objects as YAML files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mainspring import wire
from mainspring.cli.command_options import yes_option
from mainspring.cli.confirm import confirm
from mainspring.cli.connect import connected
from mainspring.cli.failure import CHANGES_FOUND
from mainspring.cli.output import Output, echo, has_color, is_terminal, print_message
from mainspring.cli.tables.manifests import plan_lines, summary

if TYPE_CHECKING:
    from mainspring.cli.manifest_files import Entry
    from mainspring.client import AsyncClient

F = TypeVar("F", bound=Callable[..., Any])
MOST_BYTES = 12_000_000
"""Of the manifests in one request; more are sent in several."""


def paths_options(function: F) -> F:
    """Add PATH arguments and -f."""
    option = click.option(
        "-f", "--file", "files", multiple=True, metavar="PATH", help="File, folder, or - for stdin. Repeatable."
    )
    return option(click.argument("paths", nargs=-1)(function))


def owner_options(function: F) -> F:
    """Add --owner, --prune and --take-over."""
    for option in (
        click.option("--take-over", is_flag=True, help="Also change objects that another owner applied."),
        click.option("--prune", is_flag=True, help="Delete what this owner applied before and the files lack."),
        click.option("--owner", default="default", show_default=True, metavar="NAME", help="Owner of the objects."),
    ):
        function = option(function)
    return function


@click.command
@paths_options
def validate(paths: tuple[str, ...], files: tuple[str, ...]) -> None:
    """Check manifests without a server: YAML, fields, schedules and workflow graphs.

    PATH is a file, a folder, or - for stdin; a file may have several documents. All problems are listed, each with
    file, line and column. What refers to the server, such as channels and calendars, is checked by `diff`.
    """
    from mainspring.cli.manifest_files import load

    entries = load(_given(paths, files))
    counts = Counter(entry.manifest.kind for entry in entries)
    echo(f"{len(entries):,} valid: " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items()))


@click.command
@paths_options
@owner_options
@connected
async def diff(
    client: AsyncClient,
    out: Output,
    paths: tuple[str, ...],
    files: tuple[str, ...],
    owner: str,
    prune: bool,
    take_over: bool,
) -> None:
    """Show what applying manifests would change; exit code 20 if anything.

    Compares three ways: the files, what was last applied, and what is on the server. Fields that other users have
    changed since are named as drift.
    """
    entries = _loaded(paths, files)
    requests = list(_requests(entries, owner=owner, prune=prune, take_over=take_over))
    plan = _joined([await _called(client.diff_manifests, request, mine) for request, mine in requests])
    _print_plan(out, plan)
    if _changes(plan):
        raise click.exceptions.Exit(CHANGES_FOUND)


@click.command
@paths_options
@owner_options
@click.option("--dry-run", is_flag=True, help="Check everything on the server, then roll back.")
@yes_option
@connected
async def apply(
    client: AsyncClient,
    out: Output,
    paths: tuple[str, ...],
    files: tuple[str, ...],
    owner: str,
    prune: bool,
    take_over: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Apply manifests: create and change objects, all or none.

    Prints the plan with old and new fires, then asks; --yes does not ask, and is required without a terminal. A field
    that the files no longer set returns to its default; a field that they never set keeps its value.
    """
    entries = _loaded(paths, files)
    requests = list(_requests(entries, owner=owner, prune=prune, take_over=take_over))
    if dry_run or (yes and len(requests) == 1):
        plans = []
        for request, mine in requests:
            plans.append(await _called(lambda r: client.apply_manifests(r, dry_run=dry_run), request, mine))
        plan = _joined(plans)
        _print_plan(out, plan)
    else:
        reviewed = [await _called(client.diff_manifests, request, mine) for request, mine in requests]
        plan = _joined(reviewed)
        if _changes(plan):
            if out.is_text:
                _print_plan(out, plan)
            confirm(f"apply this as owner {owner}", yes=yes)
        plans = []
        for (request, mine), seen in zip(requests, reviewed, strict=True):
            expected = wire.ApplyManifests(
                manifests=request.manifests,
                owner=owner,
                prune=request.prune,
                keep=request.keep,
                take_over=take_over,
                plan=seen.digest if len(requests) == 1 else None,
            )
            plans.append(await _called(client.apply_manifests, expected, mine))
        plan = _joined(plans)
        if not out.is_text or not _changes(plan):
            _print_plan(out, plan)
    if not dry_run:
        await _prune_rest(client, plan, requests)
        for change in plan.changes:
            if change.secret is not None:
                print_message(f"{change.kind} {change.name}: signing secret, shown only now: {change.secret}")
    if out.is_text:
        print_message("nothing was written: dry run" if dry_run else "applied" if _changes(plan) else "nothing to do")


@click.command
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind, such as Job. Repeatable.")
@click.option("--name", metavar="NAME", help="Only the object of this name.")
@click.option(
    "-f",
    "--file",
    "target",
    default="-",
    metavar="PATH",
    help="File or existing folder to write to.  [default: stdout]",
)
@connected
async def export(client: AsyncClient, out: Output, kinds: tuple[str, ...], name: str | None, target: str) -> None:
    """Write objects as manifests, which `diff` finds equal.

    In a folder, each object gets a file of its own. Secrets of channels are written as <stored>, which `apply` reads as
    "keep the one that is stored".
    """
    from mainspring.manifest import KINDS, write_documents

    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise click.UsageError(f"Unknown kind {unknown[0]!r}; one of {', '.join(KINDS)}.")
    found = [document async for document in _exported(client, kinds or tuple(KINDS), name)]
    if name is not None and not found:
        from mainspring.domain.errors import NotFound

        raise NotFound(f"there is no object {name!r}")
    if not out.is_text:
        out.value(found)
        return
    documents = [{"kind": d.kind, "metadata": d.metadata, "spec": d.spec} for d in found]
    if target != "-":
        written = _write_files(Path(target), documents)
        print_message(f"{len(documents):,} objects written to {written}")
    elif is_terminal(sys.stdout):
        echo(write_documents(documents), nl=False)
    else:
        sys.stdout.write(write_documents(documents))  # as it is: for a file that is applied again


@click.command
def schema() -> None:
    """Print the JSON Schema of manifests, for editors."""
    import json

    from mainspring.manifest.schema import schema as document

    sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")


def _given(paths: tuple[str, ...], files: tuple[str, ...]) -> list[str]:
    found = [*paths, *files]
    if not found:
        raise click.UsageError("Missing PATH: a file, a folder, or - for stdin.")
    return found


def _loaded(paths: tuple[str, ...], files: tuple[str, ...]) -> list[Entry]:
    from mainspring.cli.manifest_files import load

    return load(_given(paths, files))


def _requests(
    entries: Sequence[Entry], *, owner: str, prune: bool, take_over: bool
) -> Iterator[tuple[wire.ApplyManifests, list[Entry]]]:
    """Split manifests into requests; the last one prunes, and keeps what the others contain."""
    parts = list(_parts(entries))
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        earlier = [entry.key for other in parts[:number] for entry in other]
        request = wire.ApplyManifests(
            manifests=[entry.document for entry in part],
            owner=owner,
            prune=prune and last,
            keep=earlier if prune and last else sorted(_needed(part).intersection(earlier)),
            take_over=take_over,
        )
        yield request, part


def _needed(entries: Sequence[Entry]) -> set[str]:
    """The jobs that these need, as keys."""
    jobs = (entry.manifest.given.get("needs", ()) for entry in entries if entry.manifest.kind == "Job")
    return {f"{kind}/{name}" for needs in jobs for name in needs for kind in ("Job", "Workflow")}


def _parts(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    from mainspring.codec import encode

    part: list[Entry] = []
    size = 0
    for entry in entries:
        length = len(encode(entry.document))
        if part and (len(part) >= wire.MAX_MANIFESTS or size + length > MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(entry)
        size += length
    if part:
        yield part


async def _called(
    call: Callable[[wire.ApplyManifests], Any], request: wire.ApplyManifests, entries: Sequence[Entry]
) -> wire.ManifestPlan:
    """Send a request; problems of the answer point into the files."""
    from mainspring.cli.manifest_files import at_files
    from mainspring.domain.errors import MainspringError

    try:
        plan: wire.ManifestPlan = await call(request)
    except MainspringError as error:
        if not error.problems:
            raise
        raise at_files(error, entries) from None
    return plan


async def _prune_rest(
    client: AsyncClient, plan: wire.ManifestPlan, requests: Sequence[tuple[wire.ApplyManifests, list[Entry]]]
) -> None:
    """One request deletes a limited number of objects: repeat it for the rest."""
    more = plan.more
    while more:
        keep = [entry.key for _, mine in requests for entry in mine]
        rest = await client.apply_manifests(wire.ApplyManifests(owner=plan.owner, prune=True, keep=keep))
        if not rest.deleted and rest.more >= more:
            return
        print_message(f"{rest.deleted:,} more deleted")
        more = rest.more


async def _exported(
    client: AsyncClient, kinds: Sequence[str], name: str | None
) -> AsyncIterator[wire.ManifestDocument]:
    for kind in kinds:
        cursor: str | None = None
        while True:
            page = await client.manifests(kind, name=name, cursor=cursor)
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                break


def _write_files(target: Path, documents: Sequence[dict[str, Any]]) -> str:
    from mainspring.manifest import write_document, write_documents

    if not target.is_dir():
        target.write_text(write_documents(documents), encoding="utf-8")
        return str(target)
    for document in documents:
        folder = target / document["kind"].lower()
        folder.mkdir(exist_ok=True)
        (folder / f"{document['metadata']['name']}.yaml").write_text(write_document(document), encoding="utf-8")
    return f"{target}/"


def _joined(plans: Sequence[wire.ManifestPlan]) -> wire.ManifestPlan:
    """One plan of those of several requests."""
    if len(plans) == 1:
        return plans[0]
    return wire.ManifestPlan(
        owner=plans[0].owner,
        changes=[change for plan in plans for change in plan.changes],
        created=sum(plan.created for plan in plans),
        changed=sum(plan.changed for plan in plans),
        deleted=sum(plan.deleted for plan in plans),
        unchanged=sum(plan.unchanged for plan in plans),
        digest=",".join(plan.digest for plan in plans),
        applied=all(plan.applied for plan in plans),
        more=sum(plan.more for plan in plans),
    )


def _changes(plan: wire.ManifestPlan) -> bool:
    return bool(plan.created or plan.changed or plan.deleted or plan.more)


def _print_plan(out: Output, plan: wire.ManifestPlan) -> None:
    if not out.is_text:
        out.value(plan)
        return
    lines = [*plan_lines(plan, color=has_color(sys.stdout)), summary(plan)]
    echo("\n".join(lines))
