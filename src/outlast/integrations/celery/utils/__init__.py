"""The parts of `celery.utils` that tasks use."""
