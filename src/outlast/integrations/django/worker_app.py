"""The app of a worker process: sets up Django, then provides `ol`.

It is run by `manage.py outlast worker`, or with $DJANGO_SETTINGS_MODULE by
`outlast worker outlast.integrations.django.worker_app`.
"""

from __future__ import annotations

import os

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from ...worker.isolated_child import PRELOAD_VARIABLE
from .client import default_app

ol = default_app()
ol.use_own_connections()
os.environ[PRELOAD_VARIABLE] = __name__  # isolated handlers need Django, too
