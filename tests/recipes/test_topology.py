"""Topologies: devices are counted once, and labels tell all of them apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isoline.recipes.topology import Role, Topology

divided = st.sampled_from([1, 2, 4, 8])


@st.composite
def roles(draw: Any) -> Role:
    """Any role that the schema lets through."""
    tp = draw(divided)
    ways = st.sampled_from([item for item in (1, 2, 4, 8) if tp % item == 0])
    return Role(
        workers=draw(st.integers(1, 5)),
        tp=tp,
        pp=draw(divided),
        ep=draw(divided),
        dp_attention=draw(ways),
        dcp=draw(ways),
    )


topologies = st.one_of(
    st.builds(lambda role: Topology(aggregated=role), roles()),
    st.builds(lambda one, two: Topology(prefill=one, decode=two), roles(), roles()),
)


@given(roles())
def test_nothing_but_workers_tp_and_pp_multiplies(role: Role) -> None:
    """Expert parallelism, DP attention and dcp divide a worker's devices: the count is the same without."""
    bare = role.model_copy(update={"ep": 1, "dp_attention": 1, "dcp": 1})
    assert role.gpus == bare.gpus == role.workers * role.tp * role.pp
    assert role.gpus_per_worker == role.tp * role.pp


@given(topologies)
def test_devices_of_a_topology(topology: Topology) -> None:
    """Prefill and decode add up; an aggregated server is counted once."""
    assert topology.gpus == sum(role.workers * role.tp * role.pp for role in topology.roles.values())
    assert topology.is_disaggregated is (list(topology.roles) == ["prefill", "decode"])


@given(topologies, topologies)
def test_labels_tell_topologies_apart(one: Topology, two: Topology) -> None:
    """Two topologies have one label exactly when they are the same: it stands in point ids and series."""
    assert (one.label() == two.label()) is (one == two)


@pytest.mark.parametrize(
    ("content", "gpus", "label"),
    [
        ({"prefill": {"workers": 2, "tp": 4}, "decode": {"tp": 8, "ep": 8}}, 16, "p2xtp4_dtp8-ep8"),
        (
            {
                "prefill": {"tp": 8, "dp_attention": 8, "ep": 8},
                "decode": {"workers": 3, "tp": 16, "dp_attention": 16, "ep": 16},
            },
            56,
            "ptp8-ep8-dpa8_d3xtp16-ep16-dpa16",
        ),
        ({"aggregated": {"workers": 2, "tp": 4, "pp": 2, "dcp": 4}}, 16, "2xtp4-pp2-dcp4"),
    ],
)
def test_labels(content: dict[str, Any], gpus: int, label: str) -> None:
    """The label as it stands in ids."""
    topology = Topology.model_validate(content)
    assert (topology.gpus, topology.label()) == (gpus, label)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "both prefill and decode"),
        ({"prefill": {}}, "both prefill and decode"),
        ({"decode": {}}, "both prefill and decode"),
        ({"aggregated": {}, "decode": {}}, "not both"),
        ({"aggregated": {}, "prefill": {}, "decode": {}}, "not both"),
        ({"aggregated": {"tp": True}}, "valid integer"),
        ({"aggregated": {"tp": 2.0}}, "valid integer"),
        ({"aggregated": {"ep": 0}}, "greater than or equal to 1"),
        ({"aggregated": {"nodes": 2}}, "Extra inputs"),
    ],
)
def test_what_is_no_topology(content: dict[str, Any], said: str) -> None:
    """Roles that do not belong together, and counts that are none."""
    with pytest.raises(ValueError, match=said):
        Topology.model_validate(content)
