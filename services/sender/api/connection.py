"""A transaction for a route: it ends before the answer begins."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Depends
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.api.keys import Caller, caller
from services.sender.api.process import RuntimeDep


async def transaction(
    runtime: RuntimeDep, _: Annotated[Caller, Depends(caller)]
) -> AsyncGenerator[AsyncConnection]:
    """Opened when the caller is known: looking up a key needs a connection too.

    Requests that hold one while they wait for a second would keep each other waiting.
    """
    async with runtime.engine.begin() as connection:
        yield connection


#: Scope "function": a commit that fails must not follow an answer that says it worked.
ConnectionDep = Annotated[AsyncConnection, Depends(transaction, scope="function")]
