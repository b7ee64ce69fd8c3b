"""The webhook signature: over exactly the bytes that came, by any of the valid secrets."""

import hashlib
import hmac

import pytest

from shared.whatsapp.signature import sign, verify

BODY = b'{"name":"Dora \\ud83d\\ude00","path":"a\\/b"}'


def test_sign_is_hmac_sha256_of_the_raw_body():
    expected = hmac.new(b"secret", BODY, hashlib.sha256).hexdigest()
    assert sign("secret", BODY) == f"sha256={expected}"


@pytest.mark.parametrize("secrets", [["secret"], ["new", "secret"], ["secret", "old"]])
def test_any_secret_may_have_signed(secrets):
    assert verify(secrets, BODY, sign("secret", BODY))


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha256=",
        "sha256=é",
        sign("secret", BODY).removeprefix("sha256="),
        sign("secret", BODY).replace("sha256=", "sha1="),
        sign("secret", BODY)[:-1],
        sign("secret", BODY) + "0",
        sign("secret", BODY.replace(b"\\/", b"/")),
        sign("other", BODY),
    ],
)
def test_everything_else_is_refused(header):
    assert not verify(["secret", "second"], BODY, header)


def test_no_secret_verifies_nothing():
    assert not verify([], BODY, sign("", BODY))
