"""What routes get from the process: its runtime, and a transaction that ends before the answer."""

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.runtime import Runtime


def runtime(request: Request) -> Runtime:
    found: Runtime = request.state.runtime
    return found


RuntimeDep = Annotated[Runtime, Depends(runtime)]


async def transaction(runtime: RuntimeDep) -> AsyncGenerator[AsyncConnection]:
    async with runtime.engine.begin() as connection:
        yield connection


#: Scope "function": a commit that fails must not follow an answer that says it worked.
ConnectionDep = Annotated[AsyncConnection, Depends(transaction, scope="function")]
