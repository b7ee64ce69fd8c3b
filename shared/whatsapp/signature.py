"""Meta's webhook signature: HMAC-SHA256 of the raw body with the app secret."""

import hmac
from collections.abc import Sequence

_PREFIX = "sha256="


def sign(secret: str, body: bytes) -> str:
    """Value of `X-Hub-Signature-256` for this body."""
    return _PREFIX + hmac.digest(secret.encode(), body, "sha256").hex()


def verify(secrets: Sequence[str], body: bytes, header: str | None) -> bool:
    """Whether one of the secrets signed the body; every secret is tried in constant time.

    Several secrets are valid at once while an app secret is being rotated.
    """
    given = (header or "").encode()
    matches = [hmac.compare_digest(sign(secret, body).encode(), given) for secret in secrets]
    return any(matches)
