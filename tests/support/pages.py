"""Parse a page like a browser: elements, text and forms."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx2


class Page(HTMLParser):
    """A parsed page. `elements` has every start tag with its attributes, in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._words: list[str] = []
        self._area: str | None = None
        self._frame = False
        self._areas: dict[str, str] = {}
        self._choice: tuple[str, bool] | None = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        a = dict(attrs)
        if not (tag == "option" and self._frame):  # part of the frame of every page
            self.elements.append((tag, a))
        if tag == "textarea":
            self._area = a.get("name") or ""
            self._areas[self._area] = ""
        elif tag == "select":
            self._frame = a.get("id") in ("zone", "theme")
            self._choice = (a.get("name") or "", False)
        elif tag == "option" and self._choice is not None:
            name, chosen = self._choice
            if "selected" in a or not chosen:
                self._areas[name] = a.get("value") or ""
                self._choice = (name, True)

    def handle_endtag(self, tag: str) -> None:
        self._area = None if tag == "textarea" else self._area
        if tag == "select":
            self._choice, self._frame = None, False

    def handle_data(self, data: str) -> None:
        self._words.append(data)
        if self._area is not None:
            self._areas[self._area] += data

    def filled(self) -> dict[str, str]:
        """Return the values of text areas and selects."""
        return dict(self._areas)

    @property
    def text(self) -> str:
        return " ".join("".join(self._words).split())

    @property
    def raw_text(self) -> str:
        """The text with its white space."""
        return "".join(self._words)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def ids(self) -> set[str]:
        return {i for _, attributes in self.elements if (i := attributes.get("id"))}

    @property
    def csrf(self) -> str:
        return next(i["value"] or "" for i in self.all("input") if i.get("name") == "csrf")

    def active_parts(self) -> list[str]:
        """Return active content other than the scripts of this server: tests expect none."""
        found = [tag for tag, _ in self.elements if tag in ("iframe", "object", "embed", "img", "b", "base")]
        found += [f"<script src={a.get('src')}>" for a in self.all("script") if not _is_own_script(a)]
        found += [f"{tag} {name}" for tag, a in self.elements for name in a if name.startswith("on") or name == "style"]
        found += [a["href"] or "" for a in self.all("a") if not (a.get("href") or "").startswith(("/", "?", "#"))]
        return found


def _is_own_script(script: dict[str, str | None]) -> bool:
    return (script.get("src") or "").startswith("/static/")


async def open_page(browser: httpx2.AsyncClient, path: str) -> Page:
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return Page(answer.text)


def posted(page: Page) -> dict[str, str]:
    """Return what a browser would submit: every field with its value."""
    found: dict[str, str] = {}
    for a in page.all("input"):
        if (name := a.get("name")) and (a.get("type") not in ("checkbox", "radio") or "checked" in a):
            found[name] = a.get("value") or ""
    return found | page.filled()


NAVIGATION = {"accept": "text/html,application/xhtml+xml", "sec-fetch-site": "same-origin"}


async def sign_in(browser: httpx2.AsyncClient, token: str, *, then: str = "/") -> httpx2.Response:
    """Sign in with a token, by the form."""
    form = posted(Page((await browser.get("/login")).text))
    return await browser.post("/login", data=form | {"token": token, "then": then})


async def follow_link(browser: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """Open a login link and confirm it."""
    answer = await browser.get(path)
    assert answer.status_code == 200, answer.text
    return await browser.post("/login", data=posted(Page(answer.text)))
