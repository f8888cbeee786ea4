"""Liveness and readiness of a process, with reasons."""
