"""What callers send to make, start and change campaigns."""

import json
from typing import Any, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator

from services.sender.campaigns.template import TemplateError, compile_template
from shared.domain.campaigns import USUAL_BREAKER, Audience, UnknownPolicy
from shared.domain.phones import is_country

#: Of a template's components, as JSON. Meta's own limits are far below.
LARGEST: Final = 64 << 10


class Template(BaseModel):
    """What is sent, in Meta's words; any text in `components` may hold `{{column}}`."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9_]{1,512}$")
    language: str = Field(pattern=r"^[A-Za-z]{2,3}(_[A-Za-z]{2,4})?$")
    components: list[dict[str, Any]] = Field(
        default=[], max_length=20, description=f"Up to {LARGEST >> 10} KiB of JSON"
    )


class Breaker(BaseModel):
    """Pauses the campaign when more than `share` of its last outcomes are failures of its own.

    What is about one person alone (a number without WhatsApp, someone who stopped marketing) is no
    such failure. With a share of 1 it never pauses.
    """

    model_config = ConfigDict(extra="forbid")

    share: float = Field(USUAL_BREAKER.share, gt=0, le=1)
    of_last: int = Field(
        USUAL_BREAKER.of_last, ge=20, le=10_000, description="Outcomes in one process"
    )


class NewCampaign(BaseModel):
    """A draft. Its audience is open until its start, and after it where `audience` says open."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200)
    phone_number_id: str = Field(pattern=r"^[0-9]{1,32}$")
    template: Template
    endpoint: Literal["messages", "marketing_messages"] = "messages"
    unknown_policy: UnknownPolicy = UnknownPolicy.HOLD
    unknown_window: int = Field(3600, le=30 * 86400, description="Seconds")
    max_attempts: int = Field(5, ge=1, le=100)
    weight: int = Field(1, ge=1, le=1000)
    default_country: str | None = Field(None, description="Two letters, for national numbers")
    labels: dict[str, str] = Field(default={}, max_length=50)
    expires_at: AwareDatetime | None = Field(None, description="Nothing leaves after it")
    breaker: Breaker = Breaker()
    audience: Audience = Field(
        Audience.CLOSED, description="What its start makes of it; shown as `keep_open` until then"
    )

    @field_validator("default_country")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and not is_country(value):
            raise ValueError("no such country; it takes two capital letters, as in GB")
        return value

    @field_validator("template")
    @classmethod
    def _compiles(cls, value: Template) -> Template:
        try:
            compile_template(value.model_dump())
        except TemplateError as error:
            raise ValueError(str(error)) from None
        _check_size(value.components)
        return value


class Start(BaseModel):
    """`keep_open`: more recipients may come after the start. `at`: when, if not now."""

    model_config = ConfigDict(extra="forbid")

    keep_open: bool = False
    at: AwareDatetime | None = None


def without_defaults(schema: dict[str, Any]) -> None:
    """A client that sends the defaults it was told of would reset what it does not mean."""
    for field in schema["properties"].values():
        field.pop("default", None)


class Change(BaseModel):
    """What is given replaces what there was; `expires_at: null` takes the expiry away."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=without_defaults)

    weight: int = Field(1, ge=1, le=1000)
    labels: dict[str, str] = Field(default={}, max_length=50)
    expires_at: AwareDatetime | None = None
    breaker: Breaker = Breaker()


def _check_size(components: list[dict[str, Any]]) -> None:
    try:
        size = len(json.dumps(components, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        # Python's parser takes NaN, Infinity and half of a surrogate pair.
        raise ValueError("components hold a number or a character that JSON has not") from None
    if size > LARGEST:
        raise ValueError(f"components are larger than {LARGEST >> 10} KiB")
