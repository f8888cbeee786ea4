"""Client methods for tokens, users and roles."""

from __future__ import annotations

from uuid import UUID

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params


class IdentityMethods(Connected):
    async def issue_token(self, new: wire.NewToken) -> wire.IssuedToken:
        """Issue a token, with at most the rights of the caller."""
        return await self._transport.request(wire.IssuedToken, "POST", "/api/v1/tokens", body=new, creates=True)

    async def tokens(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.Token]:
        """List the tokens of the tenant that are not revoked, newest first."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.Token], "GET", "/api/v1/tokens", params=params)

    async def rotate_token(self, token_id: UUID | str, *, overlap: str = "1h") -> wire.IssuedToken:
        """Replace a token by a new one with the same rights; the old one stays valid for `overlap`."""
        body = wire.RotateToken(overlap=overlap)
        return await self._transport.request(
            wire.IssuedToken, "POST", path_of("tokens", token_id, "rotate"), body=body, creates=True
        )

    async def revoke_token(self, token_id: UUID | str) -> None:
        """Revoke a token; it stops working at once."""
        await self._transport.send("DELETE", path_of("tokens", token_id))

    async def users(self, *, limit: int | None = None, cursor: str | None = None) -> wire.Page[wire.User]:
        """List the users and services of the tenant by name."""
        params: Params = {"limit": limit, "cursor": cursor}
        return await self._transport.request(wire.Page[wire.User], "GET", "/api/v1/users", params=params)

    async def create_user(self, new: wire.NewUser) -> wire.User:
        """Create a user or a service."""
        return await self._transport.request(wire.User, "POST", "/api/v1/users", body=new, creates=True)

    async def change_user(self, name: str, change: wire.UserChange) -> wire.User:
        """Change the role or the display name of a user."""
        return await self._transport.request(wire.User, "PATCH", path_of("users", name), body=change)

    async def delete_user(self, name: str) -> None:
        """Delete a user and revoke its tokens."""
        await self._transport.send("DELETE", path_of("users", name))

    async def block_user(self, name: str) -> wire.User:
        """Block a user of an identity provider; its JWTs, sessions and streams end at once."""
        return await self._transport.request(wire.User, "POST", path_of("users", name, "block"))

    async def unblock_user(self, name: str) -> wire.User:
        """Admit a blocked user again."""
        return await self._transport.request(wire.User, "POST", path_of("users", name, "unblock"))

    async def whoami(self) -> wire.Whoami:
        """Get the caller, and what it may do."""
        return await self._transport.request(wire.Whoami, "GET", "/api/v1/whoami")

    async def roles(self) -> wire.Page[wire.Role]:
        """List the built-in roles and those of the tenant."""
        return await self._transport.request(wire.Page[wire.Role], "GET", "/api/v1/roles")

    async def write_role(self, name: str, spec: wire.RoleSpec) -> wire.Role:
        """Define a role, or change it."""
        return await self._transport.request(wire.Role, "PUT", path_of("roles", name), body=spec)

    async def delete_role(self, name: str) -> None:
        """Delete a role that no user and no token has."""
        await self._transport.send("DELETE", path_of("roles", name))
