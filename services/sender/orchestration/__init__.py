"""What keeps campaigns moving: each file one idempotent step, run every few seconds anywhere."""
