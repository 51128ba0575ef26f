"""The settings of the workers of a campaign."""

from __future__ import annotations

from ..model.settings import WorkerOptions


class CampaignWorkerOptions(WorkerOptions, total=False):
    """What `ol.worker(…)` takes by name."""

    concurrency: int
