"""Durable state: atomic files, append-only journals, locks."""
