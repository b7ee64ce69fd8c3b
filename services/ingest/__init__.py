"""Webhooks from Meta: verified, stored, answered, and applied later."""
