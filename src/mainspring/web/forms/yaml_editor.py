"""The YAML editor that jobs and workflows share: check the text, review the change, then save it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from starlette.responses import HTMLResponse, RedirectResponse, Response

from mainspring import wire
from mainspring.domain.errors import Conflict, Invalid, MainspringError
from mainspring.manifest import LocatedProblem
from mainspring.web import render
from mainspring.web.draw.diff import DiffLine
from mainspring.web.endpoint import PageRequest
from mainspring.web.forms.definition import problems_of
from mainspring.web.forms.schedule_edit import seen_version
from mainspring.web.forms.yaml_reading import located


class YamlReview(Protocol):
    """What saving would do. `digest` identifies the reviewed text and the version that it changes."""

    @property
    def digest(self) -> str: ...


Saved = TypeVar("Saved", bound=wire.Job | wire.Workflow)
Review = TypeVar("Review", bound=YamlReview)


@dataclass(slots=True)
class YamlDraft(Generic[Saved, Review]):
    """The text in the editor, its problems and its review. `saved` is what it changes; None for a new definition."""

    text: str
    saved: Saved | None = None
    problems: list[LocatedProblem] = field(default_factory=list)
    review: Review | None = None
    others_changes: list[DiffLine] = field(default_factory=list)
    conflict_text: str = ""
    status: int = 200

    @property
    def version(self) -> int:
        return self.saved.version if self.saved is not None else 0

    async def refuse(self, error: MainspringError) -> None:
        self.problems = await located(self.text, problems_of(error))
        self.status = 409 if isinstance(error, Conflict) else 422


class YamlEditor(ABC, Generic[Saved, Review]):
    """GET and POST of a new definition (`new`, `create`) and of an existing one (`edit`, `save`).

    The first POST shows a review; a POST with the digest of that review saves the definition.
    """

    template: str
    new_path: str
    list_path: str
    edit_suffix: str
    preview_template: str

    async def new(self, request: PageRequest) -> Response:
        return self._page(request, YamlDraft(await self.initial_text(request)))

    async def create(self, request: PageRequest) -> Response:
        return await self._review_or_apply(request, YamlDraft(submitted_text(request)))

    async def edit(self, request: PageRequest) -> Response:
        saved = await self.load(request)
        return self._page(request, YamlDraft(self.write(saved), saved))

    async def save(self, request: PageRequest) -> Response:
        saved, seen = await self.load(request), seen_version(request)
        draft: YamlDraft[Saved, Review] = YamlDraft(submitted_text(request), saved)
        if seen != saved.version:
            draft.others_changes = await self.changes_since(request, saved, seen)
            draft.conflict_text = f"version {saved.version} was saved while you edited version {seen}"
            draft.status = 409
        return await self._review_or_apply(request, draft)

    async def preview(self, request: PageRequest) -> Response:
        """Answer a text with its problems and what it defines, as fragments. `saved` is the definition it changes."""
        ref = request.form.get("saved", "")
        draft = YamlDraft[Saved, Review](submitted_text(request), await self.find(request, ref) if ref else None)
        values: dict[str, Any] = {}
        if draft.text.strip():
            try:
                review = await self.review(request, draft)
                values = await self.preview_values(request, review)
                draft.review = review
            except (Invalid, Conflict) as error:
                await draft.refuse(error)
        parts = render.fragment(
            self.preview_template, "preview", request.caller, draft=draft, review=draft.review, **values
        )
        return HTMLResponse(parts, 200, render.HEADERS)

    async def load(self, request: PageRequest) -> Saved:
        """Return the definition that the address names."""
        return await self.find(request, request.ref)

    async def _review_or_apply(self, request: PageRequest, draft: YamlDraft[Saved, Review]) -> Response:
        try:
            review = draft.review = await self.review(request, draft)
            reviewed = request.form.get("do") == "save" and request.form.get("reviewed") == review.digest
            if reviewed and not draft.conflict_text:
                return RedirectResponse(await self.apply(request, draft, review), 303, render.HEADERS)
        except (Invalid, Conflict) as error:
            await draft.refuse(error)
        return self._page(request, draft)

    def _page(self, request: PageRequest, draft: YamlDraft[Saved, Review]) -> Response:
        saved = draft.saved
        home = f"{self.list_path}/{saved.job_id}" if saved is not None else self.list_path
        return render.page(
            self.template,
            request.caller,
            status=draft.status,
            draft=draft,
            saved=saved,
            review=draft.review,
            list_path=self.list_path,
            home=home,
            action=f"{home}/{self.edit_suffix}" if saved is not None else self.new_path,
            **self.page_values(),
        )

    def page_values(self) -> dict[str, Any]:
        """Return more values for the template."""
        return {}

    @abstractmethod
    async def initial_text(self, request: PageRequest) -> str:
        """Return the text that a new definition starts with."""

    async def preview_values(self, request: PageRequest, review: Review) -> dict[str, Any]:
        """Return more values for the preview of a valid text."""
        return {}

    @abstractmethod
    async def find(self, request: PageRequest, ref: str) -> Saved:
        """Return a definition by its name or id; refuse one that can't be edited here."""

    @abstractmethod
    def write(self, saved: Saved) -> str:
        """Return a definition as YAML."""

    @abstractmethod
    async def changes_since(self, request: PageRequest, saved: Saved, version: int) -> list[DiffLine]:
        """Compare an earlier version with the current one."""

    @abstractmethod
    async def review(self, request: PageRequest, draft: YamlDraft[Saved, Review]) -> Review:
        """Parse and check the text; raise `Invalid` with a pointer to each problem."""

    @abstractmethod
    async def apply(self, request: PageRequest, draft: YamlDraft[Saved, Review], review: Review) -> str:
        """Save the definition and return the path of its page."""


def submitted_text(request: PageRequest) -> str:
    return request.form.get("text", "").replace("\r\n", "\n")
