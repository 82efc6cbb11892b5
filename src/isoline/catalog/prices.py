"""Dated price lists (``dashboard/prices/<yyyy-mm>.yaml``): US dollars for one accelerator and hour.

A price is an annotation: no digest covers it, and what was counted with one names the list and the tier.
What has no price has none: null, never 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from isoline.catalog.documents import (
    Document,
    DocumentError,
    ValueAtError,
    load_document,
    locate,
    must_know,
    nearest,
)
from isoline.catalog.facts import load_catalog
from isoline.errors import InputError

FOLDER = "dashboard/prices"


class PriceList(Document):
    """One list. ``tiers``: kind of buyer -> SKU -> $ per GPU and hour; what is not there has no price."""

    schema_version: Literal[1]
    dated: str = Field(pattern=r"^\d{4}-\d{2}-\d{2}$")
    source: str = Field(min_length=20)  # where the figures are publicly documented, in own words
    default_tier: str
    tiers: dict[str, dict[str, float]] = Field(min_length=1)

    @field_validator("dated")
    @classmethod
    def _is_a_day(cls, value: str) -> str:
        date.fromisoformat(value)
        return value

    @model_validator(mode="after")
    def _prices_are_prices(self) -> PriceList:
        must_know(self.default_tier, self.tiers, "tier")
        known = load_catalog().skus
        for tier, prices in self.tiers.items():
            for sku, usd in prices.items():
                if sku == "cpu":
                    raise ValueAtError(
                        "an accelerator of SKU cpu is a share of a machine: no price", "tiers", tier, sku
                    )
                if sku not in known:
                    raise ValueAtError(f"unknown SKU {sku!r}; {nearest(sku, known)}", "tiers", tier, sku)
                if not 0 < usd < math.inf:
                    raise ValueAtError(
                        f"{usd:g} is no price; leave out what is not known", "tiers", tier, sku
                    )
        return self


@dataclass(frozen=True)
class Rates:
    """The prices that count: one tier of one list.

    :param version: of the list: the name of its file, ``yyyy-mm``.
    """

    version: str
    dated: str
    tier: str
    usd_per_gpu_hour: Mapping[str, float]

    def usd(self, sku: str, gpu_minutes: float) -> float | None:
        """What accelerator time costs; None where the SKU has no price."""
        price = self.usd_per_gpu_hour.get(sku)
        return None if price is None else price * gpu_minutes / 60


def load_prices(project: Path) -> dict[str, PriceList]:
    """Version -> list, oldest first; empty for a project without any.

    :raises DocumentError: for a list that is not of the schema, or not named by its month.
    """
    lists = {}
    for path in sorted((project / FOLDER).glob("*.yaml")):
        where = f"{FOLDER}/{path.name}"
        if not re.match(r"^\d{4}-\d{2}\Z", path.stem):
            raise DocumentError([(where, "a price list is named by its month, yyyy-mm")])
        found = load_document(path, PriceList, root=project)
        if found.dated[:7] != path.stem:
            place = locate(path, ["dated"], where)
            raise DocumentError([(place, f"dated {found.dated} is not in the file's month, {path.stem}")])
        lists[path.stem] = found
    return lists


def rates_on(lists: Mapping[str, PriceList], day: date, tier: str = "") -> Rates | None:
    """The prices of a day: of the newest list that is not later; None where there is none.

    :param tier: empty: the list's own default.
    :raises InputError: for a tier that the list does not have.
    """
    versions = [name for name, item in lists.items() if item.dated <= day.isoformat()]
    if not versions:
        return None
    version = max(versions, key=lambda name: lists[name].dated)
    found = lists[version]
    name = tier or found.default_tier
    if name not in found.tiers:
        raise InputError(
            f"price list {version} has no tier {name!r}",
            where="price_tier (ISOLINE_PRICE_TIER)",
            remedy=nearest(name, found.tiers),
        )
    return Rates(version, found.dated, name, found.tiers[name])
