"""Logs without personal data."""
