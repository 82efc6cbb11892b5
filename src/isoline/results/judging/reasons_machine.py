"""Reason codes of what a preflight finds on a machine."""

from __future__ import annotations

from isoline.results.judging.verdicts import Verdict, row

_X = Verdict.INFRA_ERROR

MACHINE = (
    row(
        "memory_not_freed",
        _X,
        "launch",
        "device memory was not free again after the server had been stopped",
        "look at that machine, then isoline pool release NODE",
    ),
    row(
        "not_staged",
        _X,
        "launch",
        "an image, weights or a dataset are not on the machine; nothing is downloaded for a launch",
        "isoline pool stage POOL --sweep SWEEP",
    ),
    row(
        "tool_missing",
        _X,
        "launch",
        "a tool that the launch needs is missing or does not answer",
        "install it or look at that machine: nothing is concluded from its silence",
    ),
    row(
        "gpu_unhealthy",
        _X,
        "launch",
        "a device has memory errors that were not corrected, or asks for a reset",
        "drain the node, reset the device or replace it",
    ),
    row(
        "gpu_throttled",
        _X,
        "launch",
        "a device's clocks are held down by heat or the power supply",
        "look at cooling and power supply of that machine",
    ),
    row(
        "runtime_not_rootless",
        _X,
        "launch",
        "the pool says rootless, and the container runtime runs as root",
        "run Isoline there as the user of a rootless docker or podman, or take `rootless` out of the pool",
    ),
    row(
        "drivers_differ",
        _X,
        "launch",
        "the machines of a pool have different drivers",
        "install one driver on all, or make them two pools",
    ),
    row(
        "clock_unsynchronised",
        _X,
        "launch",
        "a machine's clock is not set by a time service, or is apart from ours",
        "start chrony or systemd-timesyncd on that machine",
    ),
    row(
        "no_nodes",
        _X,
        "launch",
        "the batch system has too few nodes that take jobs",
        "look at `sinfo`; correct partition or nodes in the pool's file",
    ),
)
