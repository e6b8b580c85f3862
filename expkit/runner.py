"""Carries out jobs: here, or in processes of their own where the driver needs several."""

from __future__ import annotations

from expkit.execution import Execution
from expkit.job import Job
from expkit.outcome import Outcome
from expkit.supervision import supervise


def carry_out(job: Job) -> Outcome:
    """Carry out a job that this process has made."""
    return supervise(job) if job.is_distributed else Execution(job).carry_out()
