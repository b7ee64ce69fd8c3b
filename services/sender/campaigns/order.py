"""A campaign's messages in the order of their ids, by an index that begins with the campaign.

With `campaign_id = :campaign` the primary key would serve as well, and what is looked at between a
campaign's first upload and its last would be the messages of all other campaigns.
"""

#: After an id, which may be the last one.
FOLLOWING = """
(campaign_id, id) > (:campaign, :after) AND campaign_id <= :campaign ORDER BY campaign_id, id
"""


def first(campaign: str) -> str:
    """A query for the first id of a campaign, which is an SQL expression."""
    return f"{_within(campaign)} ORDER BY campaign_id, id LIMIT 1"


def last(campaign: str) -> str:
    """A query for the last id of a campaign, which is an SQL expression."""
    return f"{_within(campaign)} ORDER BY campaign_id DESC, id DESC LIMIT 1"


def _within(campaign: str) -> str:
    return f"SELECT id FROM messages WHERE campaign_id BETWEEN {campaign} AND {campaign}"
