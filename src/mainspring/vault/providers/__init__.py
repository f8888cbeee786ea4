"""Providers: systems outside Mainspring that keep the values of secrets. Plug-ins add further ones by entry point."""

from mainspring.vault.providers.contract import MAX_VALUE_BYTES, Provider, ProviderFailed

__all__ = ["MAX_VALUE_BYTES", "Provider", "ProviderFailed"]
