"""The settings of the workers of a campaign."""

from __future__ import annotations

from ..model.settings import WorkerOptions


class CampaignWorkerOptions(WorkerOptions, total=False):
    """The keyword parameters of `ol.worker(…)`."""

    concurrency: int
