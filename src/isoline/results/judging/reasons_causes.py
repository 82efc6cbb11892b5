"""Reason codes of what a server's log proves (:mod:`isoline.runners.causes`)."""

from __future__ import annotations

from isoline.results.judging.verdicts import Verdict, row

_I = Verdict.INVALID
_X = Verdict.INFRA_ERROR

CAUSES = (
    row(
        "device_lost",
        _X,
        "any",
        "a device is gone, or its driver says that its hardware failed",
        "quarantine the node; it is tried on another one",
    ),
    row(
        "device_error",
        _I,
        "any",
        "the accelerator's runtime reported an error",
        "read the lines of the server log that are given as proof",
    ),
    row(
        "illegal_memory_access",
        _I,
        "any",
        "a kernel of the engine touched memory that is not its own",
        "look for a report upstream; try another backend or version",
    ),
    row(
        "driver_mismatch",
        _I,
        "launch",
        "the image does not fit the driver or the device",
        "take an image for this driver, or update the pool",
    ),
    row(
        "collective_timeout",
        _X,
        "any",
        "the processes of the engine lost each other (NCCL, RCCL)",
        "look which rank stopped first; it is tried again",
    ),
    row(
        "transport_failed",
        _X,
        "any",
        "the transport between nodes or roles failed (UCX, MPI, RDMA)",
        "look at the links of these nodes; it is tried again",
    ),
    row(
        "tokenizer_error",
        _I,
        "launch",
        "the tokenizer or the chat template cannot be used",
        "check the model's files and the chat template",
    ),
    row(
        "image_missing",
        _I,
        "launch",
        "the image is not in its registry, or not on the node",
        "check the reference, stage the image",
    ),
    row(
        "model_missing",
        _I,
        "launch",
        "files of the model are missing or damaged",
        "stage the weights: `isoline pool stage`",
    ),
    row(
        "model_gated",
        _I,
        "stage",
        "the model is gated or private and the token has no access",
        "accept the conditions on the model's page and set HF_TOKEN",
    ),
    row(
        "rate_limited",
        _X,
        "stage",
        "a hub or registry refused to answer so many requests",
        "wait, or use a token; it is tried again",
    ),
    row(
        "unknown_argument",
        _I,
        "launch",
        "the engine does not know an argument of the recipe",
        "check the recipe against this engine version",
    ),
    row(
        "not_supported",
        _I,
        "launch",
        "this engine cannot serve this model, precision or device",
        "take another engine version, precision or backend",
    ),
    row("preempted", _X, "any", "the scheduler took the nodes for somebody else", "it is tried again"),
    row(
        "node_failed",
        _X,
        "any",
        "the scheduler lost a node of the job",
        "it is tried on another node; quarantine this one",
    ),
    row(
        "job_time_limit",
        _X,
        "any",
        "the job was ended at its time limit",
        "raise time_limit_min of the pool; it is tried again",
    ),
)
