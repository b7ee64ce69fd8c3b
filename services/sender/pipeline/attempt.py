"""One attempt at one message: fill in the template, send, classify."""

import math
from dataclasses import dataclass, field

from services.sender.campaigns.template import CompiledTemplate, MissingValue
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.classify import classify
from services.sender.pipeline.outcome import Failed, Outcome
from services.sender.pipeline.send import Outlet
from shared.domain.campaigns import USUAL_BREAKER, BreakerLimit
from shared.domain.tokens import Token
from shared.whatsapp.messages import template_body


@dataclass(frozen=True, slots=True)
class Route:
    """How the messages of one campaign leave: whose number, which endpoint, with which token.

    `breaker` says how many of them may fail before the campaign stops.
    """

    phone_number_id: str
    endpoint: str
    template: CompiledTemplate
    access_token: str = field(repr=False)
    breaker: BreakerLimit = USUAL_BREAKER
    #: Seconds after its claim until which a message may leave.
    oldest_s: float = math.inf


async def attempt(
    outlet: Outlet, route: Route, message: ClaimedMessage, installation: str
) -> Outcome:
    """Send one message. Raises `CancelledError` only where nothing has left."""
    token = Token(installation, message.id, message.attempt).encode()
    try:
        template = route.template.render(message.parameters)
        body = template_body(message.phone, template, token)
    except MissingValue:
        return Failed(None, "missing_value", concluded=True)
    except (AttributeError, TypeError, ValueError):
        # Parameters of a shape that no upload lets in: this row's fault alone.
        return Failed(None, "unbuildable", concluded=True)
    latest = message.claimed + route.oldest_s
    reply = await outlet.post(
        route.phone_number_id, route.endpoint, body, route.access_token, latest
    )
    return classify(reply)
