"""`celery.utils`, as far as tasks use it."""
