"""What a launch needs of memory at least, against sums by hand."""

from __future__ import annotations

from typing import Any

import pytest

from isoline.catalog.models import Architecture, Mla
from isoline.recipes.memory import Known, kv_bytes, kv_ways, need, weight_bytes
from isoline.recipes.topology import Role

SHAPE: dict[str, Any] = {
    "layers": 80,
    "hidden": 8192,
    "heads": 64,
    "kv_layers": 80,
    "attention": "plain",
    "vocab": 128256,
    "source": "a test",
    "dated": "2026-12-01",
}
GQA = Architecture(**SHAPE, kv_heads=8, head_dim=128)
LATENT = Architecture(**SHAPE, mla=Mla(kv_lora_rank=512, rope_dim=64))


def test_weights() -> None:
    """The files' size wins over the source's, and both over parameters × bits; what is missing is said."""
    known: dict[str, Any] = {"bits": 8.0, "parameters": 70 * 10**9}
    assert weight_bytes("fp8", **known, exact=71, size_gb=72.0).value == 71
    assert weight_bytes("fp8", **known, exact=None, size_gb=72.0).value == 72e9
    assert weight_bytes("fp8", **known, exact=None, size_gb=None).value == 70e9
    assert weight_bytes("fp8", bits=8, parameters=None, exact=None, size_gb=None) == Known(
        None, "number of parameters unknown"
    )
    assert "'fp3' unknown" in weight_bytes("fp3", bits=None, parameters=1, exact=None, size_gb=None).how


def test_kv_of_a_token() -> None:
    """GQA keeps keys and values of each KV head, a latent cache one vector a layer."""
    assert kv_bytes(GQA, "bf16", bits=16).value == 2 * 80 * 8 * 128 * 2
    assert kv_bytes(LATENT, "fp8", bits=8).value == 80 * 576
    assert kv_bytes(None, "fp8", bits=8).value is None
    assert kv_bytes(GQA, "fp3", bits=None).value is None
    windows = GQA.model_copy(update={"kv_layers": None})
    assert "does not tell" in kv_bytes(windows, "fp8", bits=8).how


@pytest.mark.parametrize(
    ("shape", "role", "ways"),
    [
        (GQA, Role(tp=4), 4),
        (GQA, Role(tp=16), 8),  # 8 KV heads are copied, not cut
        (GQA, Role(tp=8, dp_attention=8), 8),
        (LATENT, Role(tp=8), 1),  # each device holds the whole latent cache
        (LATENT, Role(tp=8, dp_attention=8), 8),
        (LATENT, Role(tp=8, dcp=4), 4),
        (LATENT, Role(tp=8, dp_attention=4, pp=2), 8),
    ],
)
def test_over_how_many_devices(shape: Architecture, role: Role, ways: int) -> None:
    """KV heads are split by tensor parallelism, a latent cache only by requests, tokens and layers."""
    assert kv_ways(shape, role) == ways


def test_need_and_fit() -> None:
    """Too much is certain, enough is certain only where all is known, and a trace leaves the cache out."""
    weights, kv = Known(70e9, "x"), kv_bytes(GQA, "bf16", bits=16)
    small = need(Role(tp=1), weights=weights, kv_per_token=kv, architecture=GQA, tokens=40_000, usable=80e9)
    assert small.kv == pytest.approx(40_000 * 327_680)
    assert small.fits is False
    two = need(Role(tp=2), weights=weights, kv_per_token=kv, architecture=GQA, tokens=40_000, usable=80e9)
    assert two.fits is True
    assert two.text() == "weights 35 + KV 6.55 of 80 GB a device"
    trace = need(Role(tp=2), weights=weights, kv_per_token=kv, architecture=GQA, tokens=None, usable=80e9)
    assert (trace.kv, trace.fits) == (None, True)
    blank = need(
        Role(), weights=Known(None, "y"), kv_per_token=kv, architecture=GQA, tokens=None, usable=None
    )
    assert (blank.total, blank.fits) == (None, None)
    assert blank.unknown == ("y", "usable memory of the SKU unknown")
    # Even with something unknown, what is known may already be too much.
    unknown = need(
        Role(), weights=weights, kv_per_token=Known(None, "z"), architecture=GQA, tokens=1, usable=60e9
    )
    assert unknown.fits is False
