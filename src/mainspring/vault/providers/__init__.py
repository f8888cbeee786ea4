"""Providers: systems outside Mainspring that keep the values of secrets.

Built in are `environment`, `file`, `vault` (HashiCorp Vault and OpenBao) and `aws` (AWS Secrets Manager). Plug-ins add
further kinds by an entry point in `mainspring.secret_providers`. The provider file names those that a server has.
"""

from mainspring.vault.providers.contract import Provider, ProviderFailed
from mainspring.vault.providers.guard import GuardedProvider

__all__ = ["GuardedProvider", "Provider", "ProviderFailed"]
