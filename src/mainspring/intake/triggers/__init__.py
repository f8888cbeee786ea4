"""Triggers: definitions, and what happens when a delivery reaches one."""
