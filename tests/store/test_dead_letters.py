"""Dead letters change only while they are open, and not while another user has claimed them."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from mainspring import wire
from mainspring.store import dead_letters
from mainspring.store.db import Connection
from mainspring.store.dead_letters import DeadLetterFilter
from mainspring.testing.clock import VirtualClock
from tests.support.dead_letters import ANN, BEN, DeadLetterBench
from tests.support.settling import TENANT, SettlingBench


@pytest.fixture
async def letter(bench: SettlingBench) -> UUID:
    letters = DeadLetterBench(bench.database)
    return await letters.letter(await letters.failing())


async def claim(connection: Connection, letter: UUID, by: str, tenant: int = TENANT) -> list[UUID]:
    choice = DeadLetterFilter(ids=[letter], limit=1)
    return await dead_letters.claim_dead_letters(connection, tenant=tenant, by=by, choice=choice, for_s=60)


async def test_a_claim_excludes_others_until_it_expires_or_is_released(
    bench: SettlingBench, virtual: VirtualClock, letter: UUID
) -> None:
    async with bench.database.connection() as connection:
        assert await claim(connection, letter, ANN, tenant=TENANT + 1) == []
        assert await claim(connection, letter, ANN) == [letter]
        assert await claim(connection, letter, BEN) == []
        await virtual.advance(seconds=61)
        assert await claim(connection, letter, BEN) == [letter]
        release = {"tenant": TENANT, "dead_letter_id": letter}
        assert not await dead_letters.release_dead_letter(connection, by=ANN, **release)  # type: ignore[arg-type]
        assert await dead_letters.release_dead_letter(connection, by=BEN, **release)  # type: ignore[arg-type]
        assert await claim(connection, letter, ANN) == [letter]


async def test_an_edit_is_refused_while_another_user_has_the_claim(bench: SettlingBench, letter: UUID) -> None:
    async with bench.database.connection() as connection:
        await claim(connection, letter, ANN)
        for by, accepted in ((BEN, False), (ANN, True)):
            edit = wire.DeadLetterEdit(note=by)
            done = await dead_letters.edit_dead_letter(
                connection, tenant=TENANT, dead_letter_id=letter, by=by, edit=edit
            )
            assert done is accepted
        found = await dead_letters.dead_letter_by_id(connection, tenant=TENANT, dead_letter_id=letter)
        assert found is not None and (found.note, found.noted_by) == (ANN, ANN)


async def test_only_an_open_letter_is_locked_dismissed_or_edited(bench: SettlingBench, letter: UUID) -> None:
    choice = DeadLetterFilter(ids=[letter], limit=1)
    async with bench.database.transaction() as connection:
        assert await dead_letters.lock_dead_letters(connection, tenant=TENANT + 1, by=ANN, choice=choice) == []
        (locked,) = await dead_letters.lock_dead_letters(connection, tenant=TENANT, by=ANN, choice=choice)
        assert locked.dead_letter_id == letter
        dismiss = {"ids": [letter], "by": ANN, "reason": "known"}
        assert await dead_letters.dismiss_dead_letters(connection, tenant=TENANT + 1, **dismiss) == []  # type: ignore[arg-type]
        assert await dead_letters.dismiss_dead_letters(connection, tenant=TENANT, **dismiss) == [letter]  # type: ignore[arg-type]
        assert await dead_letters.dismiss_dead_letters(connection, tenant=TENANT, **dismiss) == []  # type: ignore[arg-type]
        assert await dead_letters.lock_dead_letters(connection, tenant=TENANT, by=ANN, choice=choice) == []
        edit = wire.DeadLetterEdit(params={"n": 1})
        assert not await dead_letters.edit_dead_letter(
            connection, tenant=TENANT, dead_letter_id=letter, by=ANN, edit=edit
        )


async def test_a_letter_is_marked_replayed_only_while_it_is_open(bench: SettlingBench, letter: UUID) -> None:
    async with bench.database.transaction() as connection:
        assert not await dead_letters.replays_under_way(connection)
        await dead_letters.mark_replayed(connection, tenant=TENANT, replayed=[(letter, uuid4())], by=ANN)
        assert await dead_letters.replays_under_way(connection)
        with pytest.raises(AssertionError):
            await dead_letters.mark_replayed(connection, tenant=TENANT, replayed=[(letter, uuid4())], by=ANN)
