"""What a log or a traceback shows of a webhook holds nothing that belongs to a person."""

import json
from datetime import UTC, datetime

from services.ingest.fold import fold
from services.ingest.group import StoredWebhook, pack, unpack
from services.ingest.parse import parse

RECEIVED = datetime(2026, 11, 1, tzinfo=UTC)
SECRETS = ("12025550142", "wamid.personal", "details of a person")
BODY = json.dumps(
    {
        "entry": [
            {
                "changes": [
                    {
                        "field": "messages",
                        "value": {
                            "statuses": [
                                {
                                    "id": "wamid.personal",
                                    "status": "failed",
                                    "timestamp": "1761955200",
                                    "recipient_id": "12025550142",
                                    "biz_opaque_callback_data": f"hr1:{'ab' * 16}:1:1",
                                    "errors": [
                                        {
                                            "code": 131026,
                                            "error_data": {"details": "details of a person"},
                                        }
                                    ],
                                },
                                {"id": "wamid.personal", "status": 12025550142},
                            ]
                        },
                    }
                ]
            }
        ]
    }
).encode()


def test_nothing_personal_is_in_the_text_of_what_ingest_passes_on():
    parsed = parse(BODY, RECEIVED)
    stored = unpack(pack([StoredWebhook(RECEIVED, "sha256=", BODY)]))
    evidence = fold(parsed.events)
    assert (len(parsed.events), len(parsed.poison), len(evidence)) == (1, 1, 1)
    shown = repr([parsed, stored, evidence])
    assert not [secret for secret in SECRETS if secret in shown]
    assert stored[0].body == BODY
