"""What the tables share: names of constraints, the status enum, times in UTC."""

from sqlalchemy import (
    Column,
    DateTime,
    Enum,
    MetaData,
    text,
)

from shared.domain.status import Status

metadata = MetaData(
    naming_convention={
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "pk": "%(table_name)s_pkey",
    }
)

MESSAGE_STATUS = Enum(
    Status, name="message_status", values_callable=lambda statuses: [s.value for s in statuses]
)
TIME = DateTime(timezone=True)
NOW = text("now()")
EMPTY = text("'{}'::jsonb")


def made() -> Column[object]:
    return Column("created_at", TIME, nullable=False, server_default=NOW)
