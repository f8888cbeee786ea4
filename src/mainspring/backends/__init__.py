"""Engines behind the ports: where artifacts are kept."""
