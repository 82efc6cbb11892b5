"""A pool out of what a person declares of a server that somebody else runs: ``--url --topology --sku``."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from isoline.catalog.documents import nearest
from isoline.catalog.facts import load_catalog
from isoline.catalog.pools import Endpoint, Pool
from isoline.errors import InputError

NAME = "endpoint"
MANY_NODES = 1024
"""Nobody here counts the machines behind an address: what is declared is believed, and marked."""

_LABEL = re.compile(r"^(?:p[a-z0-9-]+_d[a-z0-9-]+|[a-z0-9-]+)\Z")


def endpoint_pool(url: str, topology: str | None, sku: str | None) -> Pool:
    """The pool of one endpoint.

    :raises InputError: for an address that is none, an unknown SKU, or something that is missing.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InputError(f"no address of a server: {url!r}", where="--url", remedy="http://HOST:PORT")
    if parts.username or parts.password:
        raise InputError("an address with a password would end up in files", where="--url")
    if topology is None or sku is None:
        raise InputError("an endpoint is declared with --url, --topology and --sku", where="--url")
    if not _LABEL.match(topology):
        raise InputError(f"no label of a topology: {topology!r}", where="--topology", remedy="such as tp8")
    skus = load_catalog().skus
    if sku not in skus:
        raise InputError(f"unknown SKU {sku!r}", where="--sku", remedy=nearest(sku, skus))
    return Pool(
        schema_version=1,
        name=NAME,
        launcher="endpoint",
        sku=sku,
        accelerators=skus[sku].devices_per_node or 1,
        nodes=MANY_NODES,
        client_profile="shared-cpu" if sku == "cpu" else "gpu-host",
        endpoint=Endpoint(url=url.rstrip("/"), topology=topology),
    )
