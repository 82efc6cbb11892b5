"""Reason codes of what a batch system does to a launch."""

from __future__ import annotations

from isoline.results.judging.verdicts import Verdict, row

_X = Verdict.INFRA_ERROR

JOBS = (
    row(
        "preempted",
        _X,
        "launch",
        "the batch system gave the job's nodes to another job",
        "nothing: it is tried again; a QoS or reservation protects from it",
    ),
    row(
        "node_failed",
        _X,
        "launch",
        "the batch system lost a node of the job",
        "look at that node (`sinfo -R`); it is tried again",
    ),
    row(
        "job_time_limit",
        _X,
        "launch",
        "the job's time limit ended it",
        "raise slurm.time_limit_min in the pool's file, or plan fewer points a launch",
    ),
    row(
        "job_cancelled",
        _X,
        "launch",
        "somebody else cancelled the job",
        "ask who did; it is tried again",
    ),
    row(
        "job_rejected",
        _X,
        "launch",
        "the batch system did not take the job",
        "correct partition, account or QoS in the pool's file by what it says",
    ),
    row(
        "queue_timeout",
        _X,
        "launch",
        "the job did not get its nodes in time",
        "look at the queue (`squeue --me`); its reason stands beside",
    ),
)
