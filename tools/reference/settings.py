"""`docs/reference/configuration.md`: every setting, from the options of the long-running commands."""

from __future__ import annotations

import click

from mainspring.config import ENVIRONMENT_ONLY
from tools.reference.commands import commands, option_rows
from tools.reference.markdown import code, table
from tools.reference.markdown import page as make_page

_PROCESSES = {
    "serve": "Server",
    "worker": "Worker",
    "dev": "Development server",
    "db migrate": "Database commands",
}


def page() -> str:
    found = {context.command_path.removeprefix("mainspring "): context for context in commands()}
    blocks = [text for name, title in _PROCESSES.items() for text in _section(title, name, found[name])]
    return make_page(
        "Configuration",
        "A flag wins over its environment variable, which wins over the"
        " [configuration file](../how-to/configuration.md), which wins over the default."
        " The server logs a warning for each unknown variable that begins with"
        " `MAINSPRING_`.",
        *blocks,
        "## Environment variables without an option\n\nThe URL and the token can also be set as described below.",
        table(("Environment variable", "Meaning"), [(code(name), text) for name, text in ENVIRONMENT_ONLY.items()]),
        "## Where clients find the server\n\nThe CLI, the SDK and workers use the first of these that is set, for the"
        " URL and the token separately:",
        "1. the flags `--url` and `--token`, or the arguments of the same names\n"
        "2. `MAINSPRING_URL` and `MAINSPRING_TOKEN`\n"
        "3. `.mainspring/url` and `.mainspring/token` in the current folder or the nearest parent that has one\n"
        "4. `url` and `token` in `~/.config/mainspring/config.toml`\n"
        "5. `http://127.0.0.1:7171`, without a token",
        "A token is sent only to the server that it was given for:",
        "- A token of the flags or the environment goes to the URL of the flags or the environment. Without one it goes"
        " to the URL of `~/.config/mainspring/config.toml`, or to the default. If a `.mainspring` folder names another"
        " server, the command is refused: pass `--url`, or set `MAINSPRING_URL`.\n"
        "- If `MAINSPRING_URL` is set, `MAINSPRING_TOKEN` belongs to it, and is not sent to another `--url`: pass"
        " `--token`.\n"
        "- A token from a file goes to the server that the same place names. The file must be readable by its owner"
        " alone (`chmod 600`).\n"
        "- Redirects of a server are not followed.",
    )


def variables() -> set[str]:
    """Every environment variable that a page mentions."""
    return set(ENVIRONMENT_ONLY) | {row.variable for context in commands() for row in option_rows(context)} - {""}


def _section(title: str, name: str, context: click.Context) -> tuple[str, str]:
    rows = [(code(row.flags), code(row.variable), code(row.default), row.meaning) for row in option_rows(context)]
    return f"## {title}: `mainspring {name}`", table(("Flag", "Environment variable", "Default", "Meaning"), rows)
