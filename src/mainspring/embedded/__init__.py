"""Finds, starts, supervises and stops the PostgreSQL that comes with Mainspring."""
