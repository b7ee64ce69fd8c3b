"""What routes get from their process."""

from typing import Annotated

from fastapi import Depends, Request

from services.sender.pipeline.live import Live
from services.sender.runtime import Runtime


def runtime(request: Request) -> Runtime:
    found: Runtime = request.state.runtime
    return found


def live(request: Request) -> Live:
    found: Live = request.state.live
    return found


RuntimeDep = Annotated[Runtime, Depends(runtime)]
LiveDep = Annotated[Live, Depends(live)]
