"""Live messages: their rows, and the hidden campaign of each number that counts them.

Revision ID: 0002
Revises: 0001
"""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_STATES = "'draft','scheduled','running','paused','completed','cancelled'"

_UP = f"""
ALTER TABLE campaigns DROP CONSTRAINT campaigns_state_check;

ALTER TABLE campaigns ADD CONSTRAINT campaigns_state_check CHECK (state IN ({_STATES},'live'));

CREATE UNIQUE INDEX campaigns_live_key ON campaigns (phone_number_id) WHERE state = 'live';

CREATE TABLE live_messages (
    id bigint NOT NULL,
    created_at timestamptz DEFAULT now() NOT NULL,
    phone_number_id text NOT NULL,
    person text NOT NULL,
    phone text NOT NULL,
    kind text NOT NULL,
    CONSTRAINT live_messages_pkey PRIMARY KEY (id)
);

CREATE INDEX live_messages_person_idx ON live_messages (person)
"""  # built from constants

_DOWN = f"""
DELETE FROM messages WHERE campaign_id IN (SELECT id FROM campaigns WHERE state = 'live');

DROP TABLE live_messages;

DROP INDEX campaigns_live_key;

DELETE FROM campaigns WHERE state = 'live';

ALTER TABLE campaigns DROP CONSTRAINT campaigns_state_check;

ALTER TABLE campaigns ADD CONSTRAINT campaigns_state_check CHECK (state IN ({_STATES}))
"""  # built from constants


def upgrade() -> None:
    for statement in _UP.split(";\n"):
        op.execute(statement.strip())


def downgrade() -> None:
    for statement in _DOWN.split(";\n"):
        op.execute(statement.strip())
