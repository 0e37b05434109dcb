"""Connections to object stores: kept alive, through the proxy of the environment, trusting the CA the user names."""

from __future__ import annotations

import os
import threading
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import urllib3

from shardkeep.connection.addresses import is_loopback
from shardkeep.errors import ConfigurationError

CA_BUNDLE_VARIABLE: Final = "SHARDKEEP_STORE_CA_BUNDLE"
_POOLS: Final = 16


class StorePools:
    """One keep-alive pool a host. Thread-safe.

    HTTPS_PROXY, HTTP_PROXY and NO_PROXY are honoured as everywhere; loopback is never proxied. `ca_bundle` (PEM) is
    trusted instead of the system's CAs.
    """

    def __init__(self, *, connections: int, ca_bundle: str | None = None) -> None:
        if ca_bundle is not None and not Path(ca_bundle).is_file():
            raise ConfigurationError(
                f"The CA bundle for the object store, {ca_bundle!r}, is no file: see {CA_BUNDLE_VARIABLE}"
            )
        self._connections = connections
        self._ca_bundle = ca_bundle
        self._lock = threading.Lock()
        self._managers: dict[str | None, urllib3.PoolManager] = {}
        self._by_origin: dict[str, urllib3.PoolManager] = {}

    def manager_for(self, url: str) -> urllib3.PoolManager:
        """The connections by which this URL is reached."""
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        with self._lock:
            manager = self._by_origin.get(origin)
            if manager is None:
                proxy = proxy_for(url)
                if proxy not in self._managers:
                    self._managers[proxy] = self._make(proxy)
                manager = self._by_origin[origin] = self._managers[proxy]
            return manager

    def clear(self) -> None:
        """Drop the connections."""
        with self._lock:
            for manager in self._managers.values():
                manager.clear()

    def _make(self, proxy: str | None) -> urllib3.PoolManager:
        if proxy is None:
            return urllib3.PoolManager(
                num_pools=_POOLS, maxsize=self._connections, retries=False, ca_certs=self._ca_bundle
            )
        address, headers = _split_credentials(proxy)
        return urllib3.ProxyManager(
            address,
            proxy_headers=headers,
            num_pools=_POOLS,
            maxsize=self._connections,
            retries=False,
            ca_certs=self._ca_bundle,
        )


def proxy_for(url: str) -> str | None:
    """The proxy that the environment (or the system) names for a URL."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(parts.scheme) or proxies.get("all")


def ca_bundle_of(given: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The CA bundle given, else the one the environment names."""
    return given or environment.get(CA_BUNDLE_VARIABLE) or None


def _split_credentials(proxy: str) -> tuple[str, dict[str, str]]:
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.username is None:
        return urlunsplit(parts), {}
    headers = urllib3.make_headers(proxy_basic_auth=f"{parts.username}:{parts.password or ''}")
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])), dict(headers)
