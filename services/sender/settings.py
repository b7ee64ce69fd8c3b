"""The sender's settings; its secrets have no default."""

import os
import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import NoDecode
from redis.asyncio.connection import parse_url

from shared.domain.phones import prefixes
from shared.settings import DatabaseSettings, Secret, SettingsError, clean_secret, read_secret

_TOKEN = "HEADRACE_ACCESS_TOKEN"  # noqa: S105  # the name of a variable
#: A number's token name: a part of a variable's name, and never mistaken for a `_FILE`.
TOKEN_NAME = re.compile(r"(?!.*_FILE$)[A-Z][A-Z0-9_]{0,63}", re.IGNORECASE | re.ASCII)


def _fits_a_header(value: SecretStr) -> SecretStr:
    if not value.get_secret_value().isascii():
        raise ValueError("holds a character that no HTTP header takes")
    return value


HeaderSecret = Annotated[Secret, AfterValidator(_fits_a_header)]


class Role(StrEnum):
    """What a sender process runs."""

    API = "api"
    WORKER = "worker"
    ORCHESTRATOR = "orchestrator"


class SenderSettings(DatabaseSettings):
    """Where Postgres, Redis and Meta are, and what this process does."""

    redis_url: Secret = Field(validation_alias="REDIS_URL")
    graph_url: str = "https://graph.facebook.com"
    graph_version: str = Field("v25.0", pattern=r"^v[0-9]+\.[0-9]+$")
    access_token: HeaderSecret
    admin_key: HeaderSecret
    roles: Annotated[frozenset[Role], NoDecode] = frozenset(Role)
    connect_timeout_s: float = Field(5, gt=0)
    read_timeout_s: float = Field(30, gt=0)
    # A claim older than half the lease is not sent. Checked after the two timeouts above.
    lease_s: float = Field(90, gt=0)
    #: Most messages of one number in flight in one process.
    concurrency: int = Field(512, ge=1, le=4096)
    # Meta sends a webhook again for seven days.
    keep_webhooks_days: int = Field(14, ge=8, le=3650)
    keep_rejects_days: int = Field(30, ge=1, le=3650)
    #: Where numbers must begin to be sent to; None for all.
    allowed_recipients: Annotated[tuple[str, ...] | None, NoDecode, BeforeValidator(prefixes)] = (
        Field(None, repr=False, validate_default=False)
    )

    @field_validator("redis_url")
    @classmethod
    def _is_redis(cls, value: SecretStr) -> SecretStr:
        try:
            parse_url(value.get_secret_value())
        except ValueError:
            raise ValueError("is not redis://host:port/db, rediss://… or unix://…") from None
        return value

    @field_validator("graph_url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        if not value.startswith(("https://", "http://")):
            raise ValueError("must begin with https:// (or http://, for a simulator)")
        return value.rstrip("/")

    @field_validator("admin_key")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < 16:
            raise ValueError("must have at least 16 characters")
        return value

    @field_validator("roles", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        names = [name.strip() for name in value.split(",") if name.strip()]
        known = ", ".join(Role)
        if not names:
            raise ValueError(f"is empty; it takes {known}")
        for name in names:
            if name not in set(Role):
                raise ValueError(f"no role is called {name!r}; it takes {known}")
        return names

    @field_validator("lease_s")
    @classmethod
    def _outlives_a_send(cls, value: float, info: ValidationInfo) -> float:
        """Half of it must hold a whole send, or a message on the wire may be taken for lost."""
        times = [info.data.get(name, 0.0) for name in ("connect_timeout_s", "read_timeout_s")]
        if value < 2 * sum(times):
            raise ValueError(
                f"must be at least {2 * sum(times):g}: twice connect plus read timeout"
            )
        return value

    @property
    def least_unknown_window_s(self) -> int:
        """Sooner than this an unknown message may still be on the wire."""
        return int(self.lease_s + self.read_timeout_s + 60)

    def token_for(self, name: str | None) -> str:
        """The access token of a number; `name` stands for `HEADRACE_ACCESS_TOKEN_<NAME>`.

        A file is read each time, so that a new token acts without a restart. Raises
        `SettingsError` that names the variable, never its value.
        """
        variable = f"{_TOKEN}_{name.upper()}" if name else _TOKEN
        path = os.environ.get(f"{variable}_FILE")
        if name is None and path is None:
            return self.access_token.get_secret_value()
        token = read_secret(f"{variable}_FILE", path) if path else os.environ.get(variable)
        if not token:
            raise SettingsError(f"{variable}: is missing (set it in the environment, or as a file)")
        try:
            return _fits_a_header(SecretStr(clean_secret(token))).get_secret_value()
        except ValueError as error:
            raise SettingsError(f"{variable}: {error}") from None
