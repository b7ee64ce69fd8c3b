"""Closing an audience: with somebody in it, and for good."""

import pytest
from sender_api import Api

pytest_plugins = ["sender_server"]

PEOPLE = "phone,name\n+12025550123,Ana\n+12025550124,Bea\n"


async def test_an_audience_without_anybody_is_not_closed(api: Api):
    path = await api.draft()
    refused = await api.post(f"{path}/close")
    assert refused.status_code == 409
    assert "no recipients" in refused.json()["detail"]
    assert (await api.upload(path, PEOPLE)).status_code == 201
    assert (await api.post(f"{path}/close")).status_code == 200
    refused = await api.upload(path, PEOPLE)
    assert "audience is closed" in refused.json()["detail"]


@pytest.mark.parametrize("at", [{}, {"at": "2099-01-01T00:00:00Z"}])
async def test_what_was_closed_is_not_kept_open(api: Api, at):
    path = await api.draft(audience="open")
    await api.upload(path, PEOPLE)
    closed = (await api.post(f"{path}/close")).json()
    assert (closed["audience"], closed["keep_open"]) == ("closed", False)
    refused = await api.post(f"{path}/start", json=at | {"keep_open": True})
    assert refused.status_code == 409
    assert refused.json()["problems"][0]["reason"] == "audience_closed"
    started = (await api.post(f"{path}/start", json=at)).json()
    assert (started["audience"], started["keep_open"]) == ("closed", False)
