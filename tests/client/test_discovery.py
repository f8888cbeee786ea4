from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mainspring.client.discovery import DEFAULT_URL, Server, discover
from mainspring.domain.errors import Invalid, Unauthenticated


class Places:
    """A home and a project folder to look in."""

    def __init__(self, root: Path) -> None:
        self.home, self.project = root / "home", root / "project"
        for folder in (self.home / ".config" / "mainspring", self.project):
            folder.mkdir(parents=True)

    def project_file(self, name: str, text: str, mode: int = 0o600) -> Path:
        return self._write(self.project / ".mainspring" / name, text, mode)

    def config(self, text: str, mode: int = 0o600) -> Path:
        return self._write(self.home / ".config" / "mainspring" / "config.toml", text, mode)

    def find(self, url: str | None = None, token: str | None = None, folder: Path | None = None, **env: Any) -> Server:
        return discover(url, token, env=env, folder=folder or self.project, home=self.home)

    def _write(self, path: Path, text: str, mode: int) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def test_order_of_precedence(places: Places) -> None:
    assert places.find() == Server(DEFAULT_URL, None, "the default")
    config = places.config('url = "http://config:1"\ntoken = "from-config"\n')
    assert places.find() == Server("http://config:1", "from-config", str(config))
    url_file = places.project_file("url", "http://project:2\n")
    places.project_file("token", "from-project\n")
    assert places.find() == Server("http://project:2", "from-project", str(url_file))
    env: dict[str, Any] = {"MAINSPRING_URL": "http://env:3", "MAINSPRING_TOKEN": "from-env"}
    assert places.find(**env) == Server("http://env:3", "from-env", "MAINSPRING_URL")
    assert places.find("http://flag:4/", "from-flag", **env) == Server("http://flag:4", "from-flag", "--url")


def test_the_project_is_found_from_below_and_the_nearest_counts(places: Places) -> None:
    places.project_file("url", "http://outer:1")
    below = places.project / "a" / "b"
    below.mkdir(parents=True)
    assert places.find(folder=below).url == "http://outer:1"
    inner = below / ".mainspring"
    inner.mkdir()
    assert places.find(folder=below).url == "http://outer:1", "an empty folder names nothing"
    (inner / "url").write_text("http://inner:2")
    assert places.find(folder=below).url == "http://inner:2"


def test_a_token_from_a_file_goes_only_to_the_server_of_the_same_place(places: Places) -> None:
    places.project_file("token", "for-the-default")
    assert places.find().token == "for-the-default"
    assert places.find("http://localhost:7171/").token == "for-the-default"
    assert places.find("https://elsewhere.example").token is None
    assert places.find("http://127.0.0.1:7172").token is None
    assert places.find(MAINSPRING_URL="http://127.0.0.1:9").token is None
    assert places.find("https://elsewhere.example", MAINSPRING_TOKEN="meant").token == "meant"


@pytest.mark.parametrize("given", [{"token": "mine"}, {"MAINSPRING_TOKEN": "mine"}])
@pytest.mark.parametrize("evil", ["https://evil.example", "http://127.0.0.1:9999", "https://127.0.0.1:7171"])
def test_a_folder_cannot_redirect_a_token(places: Places, given: dict[str, Any], evil: str) -> None:
    """A folder may come from anywhere: a cloned repository, an archive."""
    url_file = places.project_file("url", evil)
    with pytest.raises(Unauthenticated, match="--url") as refused:
        places.find(**given)
    assert refused.value.code == "token_of_another_server"
    assert evil in refused.value.message and str(url_file) in refused.value.message
    assert "mine" not in refused.value.message
    places.project_file("token", "theirs")
    with pytest.raises(Unauthenticated):
        places.find(**given)
    assert places.find().token == "theirs", "without a token of mine, the folder's own goes to its server"
    both: list[dict[str, Any]] = [{"url": evil}, {"MAINSPRING_URL": evil}]
    for named in both:
        assert places.find(**given, **named).token == "mine", "named by whoever runs the command"


def test_a_folder_may_name_the_server_that_is_used_without_it(places: Places) -> None:
    places.project_file("url", "http://localhost:7171")
    assert places.find(MAINSPRING_TOKEN="mine").token == "mine"
    places.config('url = "https://own.example"')
    with pytest.raises(Unauthenticated):
        places.find(MAINSPRING_TOKEN="mine")
    places.project_file("url", "https://OWN.example:443/")
    assert places.find(MAINSPRING_TOKEN="mine").token == "mine"


def test_the_token_of_the_environment_belongs_to_its_url(places: Places) -> None:
    env: dict[str, Any] = {"MAINSPRING_URL": "https://one.example", "MAINSPRING_TOKEN": "mine"}
    assert places.find("https://two.example", **env).token is None
    places.config('url = "https://two.example"\ntoken = "of-two"')
    assert places.find("https://two.example", **env).token == "of-two"
    assert places.find("https://one.example/", **env).token == "mine"
    assert places.find("https://two.example", "its-own", **env).token == "its-own"


def test_a_config_that_others_can_change_does_not_name_the_server_of_a_token(places: Places) -> None:
    places.config('url = "https://own.example"', 0o664)
    with pytest.raises(Unauthenticated, match="chmod go-w"):
        places.find(MAINSPRING_TOKEN="mine")
    places.config('url = "https://own.example"', 0o644)
    assert places.find(MAINSPRING_TOKEN="mine").url == "https://own.example"


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_token_that_others_can_read_is_refused(places: Places, mode: int) -> None:
    path = places.project_file("token", "open", mode)
    with pytest.raises(Unauthenticated, match=f"mode 0{mode:o}.*chmod 600 {path}") as refused:
        places.find()
    assert refused.value.code == "unsafe_token"
    assert places.find(token="given").token == "given", "a file that is not needed is not looked at"


def test_a_token_in_an_open_config_is_refused_but_an_address_is_not(places: Places) -> None:
    places.config('url = "http://config:1"', 0o644)
    assert places.find().url == "http://config:1"
    places.config('token = "open"', 0o644)
    with pytest.raises(Unauthenticated, match="other users can read"):
        places.find()


def test_files_of_another_user_are_refused(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    places.project_file("url", "http://theirs:1")
    someone_else = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: someone_else)
    with pytest.raises(Unauthenticated, match=r"\.mainspring belongs to another user"):
        places.find(MAINSPRING_TOKEN="must-not-leak")
    (places.project / ".mainspring" / "url").unlink()
    places.config('token = "theirs"')
    with pytest.raises(Unauthenticated, match=r"config\.toml belongs to another user"):
        places.find()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("url: http://x", "not valid TOML"),
        ('tokn = "x"', "unknown setting 'tokn'"),
        ("url = 5", "url must be a string"),
        ('url = "ftp://x"', "not a valid server URL"),
    ],
)
def test_a_wrong_config_is_refused_with_its_name(places: Places, text: str, says: str) -> None:
    path = places.config(text)
    with pytest.raises(Invalid, match=says) as refused:
        places.find()
    assert str(path) in refused.value.message
    assert refused.value.problems[0].hint


def test_a_misspelled_setting_gets_a_suggestion(places: Places) -> None:
    places.config('tokn = "x"')
    with pytest.raises(Invalid) as refused:
        places.find()
    assert refused.value.problems[0].hint == "did you mean 'token'?"


@pytest.mark.parametrize(
    "url", ["x", "127.0.0.1:7171", "http://", "http://a:x", "http://a?b", "http://u:p@a", "http://["]
)
def test_an_invalid_url_is_rejected(places: Places, url: str) -> None:
    with pytest.raises(Invalid, match="--url"):
        places.find(url)


@pytest.mark.parametrize("token", ["a b", "a\nb", "tökén"])
def test_an_invalid_token_is_rejected(places: Places, token: str) -> None:
    with pytest.raises(Unauthenticated, match="copied"):
        places.find(token=token)


def test_a_token_is_not_shown(places: Places) -> None:
    assert "s3cret" not in repr(places.find(token="s3cret"))
