"""One attempt at one message: fill in the template, send, classify."""

import asyncio
from dataclasses import dataclass, field

from services.sender.campaigns.template import CompiledTemplate, MissingColumn
from services.sender.pipeline.claim import ClaimedMessage
from services.sender.pipeline.classify import classify
from services.sender.pipeline.outcome import Failed, Outcome, Throttled
from services.sender.pipeline.send import Outlet
from shared.domain.tokens import Token
from shared.whatsapp.messages import template_body


@dataclass(frozen=True, slots=True)
class Route:
    """How the messages of one campaign leave: whose number, which endpoint, with which token."""

    phone_number_id: str
    endpoint: str
    template: CompiledTemplate
    access_token: str = field(repr=False)


async def attempt(
    outlet: Outlet, route: Route, message: ClaimedMessage, installation: str
) -> Outcome:
    """Send one message. Cancelled before the request left, it goes back to pending."""
    token = Token(installation, message.id, message.attempt).encode()
    try:
        template = route.template.render(message.parameters)
    except MissingColumn:
        return Failed(None, "missing_column", concluded=True)
    body = template_body(message.phone, template, token)
    try:
        reply = await outlet.post(route.phone_number_id, route.endpoint, body, route.access_token)
    except asyncio.CancelledError:
        return Throttled("drained", sent_nothing=True)
    return classify(reply)
