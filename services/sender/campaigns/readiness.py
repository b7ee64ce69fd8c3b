"""What keeps a campaign from starting now."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.sender.campaigns.template import compile_template

# An upload without a heartbeat for two minutes has died with its process.
_FACTS = text("""
SELECT
    coalesce(expires_at <= now(), false) AS expired,
    (SELECT r.parameters FROM recipients r WHERE r.id = (
        SELECT id FROM messages WHERE campaign_id = :campaign ORDER BY id LIMIT 1
    )) AS first,
    EXISTS (
        SELECT FROM uploads WHERE campaign_id = :campaign AND state = 'running'
        AND heartbeat_at > now() - interval '2 minutes'
    ) AS uploading
FROM campaigns WHERE id = :campaign
""")


async def obstacle(
    connection: AsyncConnection, campaign_id: int, template: Mapping[str, Any], *, keep_open: bool
) -> str | None:
    """What is missing or in the way, with its cure; None when it may start."""
    facts = (await connection.execute(_FACTS, {"campaign": campaign_id})).one()
    if facts.expired:
        return "the campaign has expired: give it a later expires_at first"
    if facts.uploading and not keep_open:
        return (
            "an upload is under way, and starting closes the audience:"
            " wait for it, or start with keep_open"
        )
    if facts.first is None:
        return "the campaign has no recipients: upload some first"
    columns = compile_template(template).columns
    missing = [column for column in columns if column not in facts.first]
    if missing:
        names = ", ".join(missing)
        return f"the template needs columns that the recipients do not have: {names}"
    return None
