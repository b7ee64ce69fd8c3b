"""What would spoil a campaign without refusing its start, each with its cure."""

from dataclasses import dataclass
from datetime import UTC, datetime

from services.sender.campaigns.left_out import LeftOut
from services.sender.campaigns.lifecycle import Campaign
from services.sender.campaigns.readiness import Finding, place


@dataclass(frozen=True, slots=True)
class Seen:
    """What the database says of a campaign's number, its uploads and the installation."""

    now: datetime
    rate: int
    headroom: float
    halted: bool
    number_paused: bool
    paused_reason: str | None
    paused_until: datetime | None
    webhooks_seen_at: datetime | None
    refused: int
    upload_failed: bool


@dataclass(frozen=True, slots=True)
class Outlook:
    """What would come of a start. `closes`: it would close the audience."""

    begins_at: datetime
    ends_at: datetime | None
    closes: bool
    left_out: LeftOut


def spoilers(campaign: Campaign, seen: Seen, outlook: Outlook) -> list[Finding]:
    found = (
        _halted(seen),
        _paused(campaign, seen),
        _unheard(seen),
        _too_short(campaign, outlook),
        _failed(campaign, seen),
        _refused(campaign, seen),
        _closing(seen, outlook),
        _opted_out(outlook),
        _not_allowed(outlook),
    )
    return [one for one in found if one is not None]


def _halted(seen: Seen) -> Finding | None:
    if not seen.halted:
        return None
    return Finding("halted", "nothing leaves from any number", "POST /v1/unhalt")


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _paused(campaign: Campaign, seen: Seen) -> Finding | None:
    if not seen.number_paused:
        return None
    end = f" until {_time(seen.paused_until)}" if seen.paused_until else ""
    cure = f"POST /v1/phone-numbers/{campaign.phone_number_id}/resume"
    return Finding("number_paused", f"the number is paused ({seen.paused_reason}){end}", cure)


def _unheard(seen: Seen) -> Finding | None:
    if seen.webhooks_seen_at is not None:
        return None
    detail = "no webhook of the number was ever applied: if none comes, nobody knows what arrives"
    cure = "subscribe the app to the field messages, with ingest's /webhooks/whatsapp as its URL"
    return Finding("no_webhooks", detail, cure)


def _too_short(campaign: Campaign, outlook: Outlook) -> Finding | None:
    ends_at, expires_at = outlook.ends_at, campaign.expires_at
    if ends_at is None or expires_at is None:
        return None
    # What expires before it begins is a problem, and no second finding.
    if not outlook.begins_at < expires_at < ends_at:
        return None
    detail = f"it would end at {_time(ends_at)}, and expires at {_time(expires_at)}"
    cure = f"PATCH {place(campaign)} with a later expires_at, or start it earlier"
    return Finding("expires_before_end", detail, cure)


def _failed(campaign: Campaign, seen: Seen) -> Finding | None:
    if not seen.upload_failed:
        return None
    detail = "the newest upload failed, and nothing of it was taken"
    cure = f"GET {place(campaign)} says why: upload the file again"
    return Finding("upload_failed", detail, cure)


def _refused(campaign: Campaign, seen: Seen) -> Finding | None:
    if not seen.refused:
        return None
    cure = f"GET {place(campaign)}/rejects says why: mend these rows, and upload them"
    return Finding("rows_refused", f"rows that the newest upload refused: {seen.refused}", cure)


def _closing(seen: Seen, outlook: Outlook) -> Finding | None:
    """The start of most campaigns closes the audience: told where that would be too soon."""
    if not outlook.closes or not (seen.refused or seen.upload_failed):
        return None
    detail = "the start closes the audience, and then nothing more is taken"
    return Finding(
        "audience_closes",
        detail,
        "upload what is missing first, or keep the audience open at the start (keep_open)",
    )


def _opted_out(outlook: Outlook) -> Finding | None:
    if not outlook.left_out.opted_out:
        return None
    detail = f"recipients who have opted out: {outlook.left_out.opted_out}"
    return Finding("opted_out", detail, "none is needed: they are skipped")


def _not_allowed(outlook: Outlook) -> Finding | None:
    if not outlook.left_out.not_allowed:
        return None
    detail = f"recipients outside of HEADRACE_ALLOWED_RECIPIENTS: {outlook.left_out.not_allowed}"
    return Finding("not_allowed", detail, "change or take away the setting: they are skipped")
