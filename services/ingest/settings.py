"""What ingest needs to start: the database and Meta's two secrets."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import NoDecode

from shared.settings import DatabaseSettings


def _split(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


def _not_empty(value: SecretStr) -> SecretStr:
    # An empty secret would accept whatever an attacker signs with nothing.
    text = value.get_secret_value().strip()
    if not text:
        raise ValueError("holds an empty entry")
    return SecretStr(text)


Secret = Annotated[SecretStr, AfterValidator(_not_empty)]


class IngestSettings(DatabaseSettings):
    """Two app secrets are valid at once while one replaces the other."""

    app_secrets: Annotated[tuple[Secret, ...], NoDecode, BeforeValidator(_split)] = Field(
        min_length=1
    )
    verify_token: Secret

    @property
    def secrets(self) -> list[str]:
        return [secret.get_secret_value() for secret in self.app_secrets]
