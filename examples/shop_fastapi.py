"""A FastAPI service that stores an order and submits its receipt in one transaction.

    DATABASE_URL=postgresql+asyncpg://shop@localhost/mainspring uvicorn shop_fastapi:app

The database is Mainspring's; `SELECT mainspring.allow_submit('shop')` allows the role `shop` to submit.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from shop_jobs import Order, send_receipt
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine

engine = create_async_engine(os.environ["DATABASE_URL"])
sessions = async_sessionmaker(engine)


class NewOrder(BaseModel):
    address: str
    cents: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def create_order(new: NewOrder) -> dict[str, Any]:
    async with sessions.begin() as session:
        number = await _insert(session, new)
        if new.cents < 0:
            raise HTTPException(422, "an order costs something")  # rolls back, with the receipt
        order = Order(number, new.address, new.cents)
        receipt = await send_receipt.submit(conn=session, key=f"receipt-{number}", order=order)
    return {"number": number, "receipt": str(receipt.execution_id)}


@app.get("/quote")
async def quote(cents: int) -> dict[str, Any]:
    """Submit, and wait for the result without blocking the event loop."""
    handle = await send_receipt.submit_async(order=Order(0, "quote@example.com", cents))
    return await handle.result_async(timeout=30)


async def _insert(session: AsyncSession, new: NewOrder) -> int:
    statement = text("INSERT INTO orders (address, cents) VALUES (:address, :cents) RETURNING number")
    return int((await session.execute(statement, new.model_dump())).scalar_one())
