"""What the simulator is told by its environment."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr, field_validator

from shared.settings import Secret, Settings


def _plain_http(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("must be http://host[:port]/path")
    return url


WebhookUrl = Annotated[str, AfterValidator(_plain_http)]


class SimulatorSettings(Settings):
    """The first of `app_secrets` signs webhooks. Without `sim_access_token` any bearer will do."""

    app_secrets: Secret
    sim_webhook_url: WebhookUrl | None = None
    sim_access_token: Secret | None = None
    sim_waba_id: str = "0"

    @field_validator("app_secrets")
    @classmethod
    def _has_first(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value().split(",")[0].strip():
            raise ValueError("the first secret is empty")
        return value

    @property
    def signing_secret(self) -> str:
        """The secret in use: the others are being rotated out."""
        return self.app_secrets.get_secret_value().split(",")[0].strip()
