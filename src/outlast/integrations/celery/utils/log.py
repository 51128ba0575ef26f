"""`celery.utils.log`: loggers of tasks."""

from __future__ import annotations

import logging


def get_task_logger(name: str) -> logging.Logger:
    return logging.getLogger(name)
