"""Implementations of the artifact store port."""
