"""Embedded PostgreSQL: finds, starts, supervises and stops a server on this machine."""
