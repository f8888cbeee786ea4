"""Implementations of ports: artifact stores, and optional engines beside PostgreSQL."""
