"""Secrets: their encryption, and where their values come from."""
