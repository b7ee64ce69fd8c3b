"""What routes get from their process."""

from typing import Annotated

from fastapi import Depends, Request

from services.sender.runtime import Runtime


def runtime(request: Request) -> Runtime:
    found: Runtime = request.state.runtime
    return found


RuntimeDep = Annotated[Runtime, Depends(runtime)]
