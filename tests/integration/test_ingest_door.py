"""The door of the running service: who gets in, and what is stored before the answer."""

import asyncio
import socket

import httpx
import pytest
from ingest_rows import AT, column, installation_of, new_campaign, new_message, status, webhook
from waiting import until

from services.ingest.group import unpack
from services.ingest.receive import LARGEST_BODY, PATH
from shared.domain.tokens import Token
from shared.whatsapp.signature import sign

APP = "services.ingest.app:create_app"
BODY = webhook([])
HANDSHAKE = {"hub.mode": "subscribe", "hub.verify_token": "vérify", "hub.challenge": "1158201444"}


def signed(body: bytes, by: str = "new") -> dict[str, str]:
    return {"X-Hub-Signature-256": sign(by, body)}


@pytest.fixture
async def ingest(processes, database_url):
    env = {
        "DATABASE_URL": database_url,
        "HEADRACE_APP_SECRETS": "new,old",
        "HEADRACE_VERIFY_TOKEN": "vérify",
    }
    return await processes.start("ingest", APP, env)


@pytest.fixture
async def client(ingest):
    async with httpx.AsyncClient(base_url=ingest.url, trust_env=False) as opened:
        yield opened


async def groups(engine) -> list[bytes]:
    packed = await column(engine, "SELECT bodies FROM webhook_groups ORDER BY id")
    return [one.body for group in packed for one in unpack(group)]


async def test_only_what_is_signed_gets_in(client, engine):
    answers = [
        await client.post(PATH, content=BODY),
        await client.post(PATH, content=BODY, headers={"X-Hub-Signature-256": "sha256=é".encode()}),
        await client.post(PATH, content=BODY, headers=signed(BODY, "third")),
        await client.post(PATH, content=BODY + b" ", headers=signed(BODY)),
        await client.post(PATH, content=b"", headers={"X-Hub-Signature": sign("new", b"")}),
    ]
    assert [answer.status_code for answer in answers] == [401] * 5
    assert await groups(engine) == []
    for secret in ("new", "old"):
        answer = await client.post(PATH, content=BODY, headers=signed(BODY, secret))
        assert answer.status_code == 200
    assert await groups(engine) == [BODY, BODY]


async def test_any_signed_body_is_taken_and_a_bad_one_never_answers_500(client, engine):
    for body in (b"", b"no json", b"[[[", b"\xff", BODY):
        assert (await client.post(PATH, content=body, headers=signed(body))).status_code == 200
    assert await groups(engine) == [b"", b"no json", b"[[[", b"\xff", BODY]


async def test_the_size_has_a_limit(client, engine):
    largest = b" " * LARGEST_BODY
    over = largest + b" "

    async def in_pieces():
        for start in range(0, len(over), 2**18):
            yield over[start : start + 2**18]

    assert (await client.post(PATH, content=largest, headers=signed(largest))).status_code == 200
    assert (await client.post(PATH, content=over, headers=signed(over))).status_code == 413
    assert (await client.post(PATH, content=in_pieces(), headers=signed(over))).status_code == 413
    assert [len(body) for body in await groups(engine)] == [LARGEST_BODY]


async def test_a_client_that_goes_away_within_its_body_leaves_nothing(ingest, client, engine):
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n"
        f"X-Hub-Signature-256: {sign('new', BODY)}\r\n\r\n"
    ).encode()
    with socket.create_connection(("127.0.0.1", ingest.port), timeout=5) as connection:
        connection.sendall(head + BODY[:-1])

    async def gone() -> bool:
        metrics = (await client.get("/metrics")).text
        return 'headrace_ingest_webhooks_total{result="gone"} 1.0' in metrics

    await until(gone)
    assert await groups(engine) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, 200),
        ({"hub.verify_token": "wrong"}, 403),
        ({"hub.verify_token": "é"}, 403),
        ({"hub.verify_token": ""}, 403),
        ({"hub.mode": "unsubscribe"}, 403),
    ],
)
async def test_handshake(client, change, expected):
    answer = await client.get(PATH, params=HANDSHAKE | change)
    assert answer.status_code == expected
    assert answer.text == (HANDSHAKE["hub.challenge"] if expected == 200 else "")
    if expected == 200:
        assert answer.headers["content-type"].startswith("text/plain")


async def test_a_handshake_without_parameters_is_refused(client):
    assert (await client.get(PATH)).status_code == 403


async def test_a_read_that_comes_before_its_sent_is_applied(client, engine):
    installation = await installation_of(engine)
    async with engine.begin() as connection:
        campaign = await new_campaign(connection)
        message = await new_message(connection, campaign, status="claimed", claimed_at=AT)
    for name in ("read", "sent"):
        body = webhook([status(Token(installation, message, 1), name)])
        assert (await client.post(PATH, content=body, headers=signed(body))).status_code == 200

    async def statuses() -> list[str]:
        return await column(engine, "SELECT status::text FROM messages WHERE sent_at IS NOT NULL")

    assert await until(statuses) == ["read"]


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json"])
async def test_the_internet_gets_no_description_of_it(client, path):
    assert (await client.get(path)).status_code == 404


async def test_ready_and_metrics_without_personal_data(client):
    body = webhook([status(None, "failed", wamid="wamid.secret", code=131026)])
    await client.post(PATH, content=body, headers=signed(body))
    assert (await client.get("/readyz")).status_code == 200
    metrics = (await client.get("/metrics")).text
    assert "headrace_ingest_webhooks_total" in metrics
    assert "wamid" not in metrics
    assert "12025550142" not in metrics


async def test_many_at_once_are_each_stored_once(client, engine):
    bodies = [webhook([status(None, "sent", wamid=f"w{number}")]) for number in range(200)]
    posts = [client.post(PATH, content=body, headers=signed(body)) for body in bodies]
    assert {answer.status_code for answer in await asyncio.gather(*posts)} == {200}
    assert sorted(await groups(engine)) == sorted(bodies)
