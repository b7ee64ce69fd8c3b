"""Settings from the environment; a bad one stops the start with one line that names it."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

_PREFIX = "HEADRACE_"
_PROBLEMS = {"missing": "is missing"}


class SettingsError(Exception):
    """A missing or wrong setting, said in one line without its value."""


def clean_secret(text: str) -> str:
    """A secret without the space around it. Raises `ValueError` for what cannot be one.

    An empty secret would accept whatever an attacker signs with nothing.
    """
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    if not text.isprintable():
        raise ValueError("holds a line end or another control character")
    return text


def _clean(value: SecretStr) -> SecretStr:
    return SecretStr(clean_secret(value.get_secret_value()))


Secret = Annotated[SecretStr, AfterValidator(_clean)]


class Settings(BaseSettings):
    """What every service needs. Each service adds its own and has secrets of its own only."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        frozen=True,
        extra="ignore",
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    log_format: Literal["json", "console"] = "json"

    @classmethod
    def load(cls) -> Self:
        """Read the environment. Raises `SettingsError` for the first setting that is wrong."""
        from_files = _from_files(cls.model_fields)
        try:
            return cls(**from_files)
        except ValidationError as error:
            raise SettingsError(_line(cls.model_fields, error)) from None


class DatabaseSettings(Settings):
    """The settings of a service that works on Postgres."""

    database_url: Secret = Field(validation_alias="DATABASE_URL")
    pgbouncer: bool = False
    #: For a clone of a database: an id of its own, instead of the one that the migration made.
    installation: str | None = Field(None, pattern="^[0-9a-f]{32}$")

    @field_validator("database_url")
    @classmethod
    def _is_postgres(cls, value: SecretStr) -> SecretStr:
        if not _is_postgres_url(value.get_secret_value()):
            raise ValueError(
                "is not postgresql://user:password@host:port/name"
                " (special characters of the password as %XX)"
            )
        return value


def _is_postgres_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # a port that is no number, an address that is none
        return False
    return parts.scheme in ("postgresql", "postgres") and port != 0


def variable(name: str, field: FieldInfo) -> str:
    """Environment variable of a settings field."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = str(alias.choices[0])
    return alias if isinstance(alias, str) else f"{_PREFIX}{name.upper()}"


def _from_files(fields: dict[str, FieldInfo]) -> dict[str, Any]:
    """Values of the settings that are given as `NAME_FILE`."""
    found = {}
    for name, field in fields.items():
        path = os.environ.get(f"{variable(name, field)}_FILE")
        if path is not None:  # an empty one is a mistake, not a setting that is left out
            found[name] = read_secret(f"{variable(name, field)}_FILE", path)
    return found


def read_secret(name: str, path: str) -> str:
    """Text of a secret's file without the line end."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{name}: cannot read the file ({type(error).__name__})") from None


def _line(fields: dict[str, FieldInfo], error: ValidationError) -> str:
    first = error.errors(include_input=False, include_url=False)[0]
    place = str(first["loc"][0]) if first["loc"] else ""
    name = variable(place, fields[place]) if place in fields else place
    problem = _PROBLEMS.get(first["type"], first["msg"].removeprefix("Value error, "))
    return f"{name}: {problem} (set it in the environment, or as {name}_FILE)"
