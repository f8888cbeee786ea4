"""A mail server that stores messages: enough SMTP for the mail channel, with STARTTLS and a password."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message


@dataclass
class Postbox:
    port: int = 0
    letters: list[Message] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    secured: int = 0
    refuses: bool = False
    full_after: int = -1  # refuses one message after this many
    tls: ssl.SSLContext | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(line: str) -> None:
            writer.write(line.encode() + b"\r\n")

        say("220 postbox")
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while line := (await reader.readline()).decode().strip():
                word = line.split()[0].upper()
                if word == "EHLO":
                    say("250-postbox")
                    if self.tls is not None:
                        say("250-STARTTLS")
                    say("250 AUTH PLAIN")
                elif word == "STARTTLS":
                    say("220 go on")
                    await writer.drain()
                    assert self.tls is not None
                    await writer.start_tls(self.tls)
                    self.secured += 1
                elif word == "AUTH":
                    self.logins.append(base64.b64decode(line.split()[-1]).decode().replace("\0", " ").strip())
                    say("235 welcome")
                elif word == "DATA":
                    say("354 go on")
                    data = await reader.readuntil(b"\r\n.\r\n")
                    if self.refuses or len(self.letters) == self.full_after:
                        self.full_after = -1
                        say("451 the mailbox is full")
                    else:
                        self.letters.append(message_from_bytes(data[:-3]))
                        say("250 kept")
                elif word == "QUIT":
                    say("221 bye")
                    break
                else:
                    say("250 fine")
                await writer.drain()
        writer.close()


@asynccontextmanager
async def postbox(tls: ssl.SSLContext | None = None, *, at_once: bool = False) -> AsyncIterator[Postbox]:
    """`at_once`: TLS from the first byte, instead of STARTTLS."""
    box = Postbox(tls=None if at_once else tls)
    server = await asyncio.start_server(box.serve, "127.0.0.1", 0, ssl=tls if at_once else None)
    box.port = server.sockets[0].getsockname()[1]
    async with server:
        yield box
