"""Mainspring: a distributed job scheduler on PostgreSQL alone."""

__version__ = "0.1.0"
