"""What ingest needs to start: the database and Meta's two secrets."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from shared.settings import DatabaseSettings, Secret


def _split(value: object) -> object:
    return value.split(",") if isinstance(value, str) else value


class IngestSettings(DatabaseSettings):
    """Two app secrets are valid at once while one replaces the other."""

    app_secrets: Annotated[tuple[Secret, ...], NoDecode, BeforeValidator(_split)] = Field(
        min_length=1
    )
    verify_token: Secret

    @property
    def secrets(self) -> list[str]:
        return [secret.get_secret_value() for secret in self.app_secrets]
