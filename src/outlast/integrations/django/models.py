"""Models without tables, which provide names and permissions for the admin's pages.

Jobs are read and changed through `ol`, never through the ORM.
"""

from __future__ import annotations

from django.db import models


class StoredJob(models.Model):  # type: ignore[misc]
    id = models.UUIDField(primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "job"


class DeadJob(models.Model):  # type: ignore[misc]
    id = models.UUIDField(primary_key=True)

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "dead job"


class ScheduleEntry(models.Model):  # type: ignore[misc]
    name = models.CharField(primary_key=True, max_length=200)

    class Meta:
        managed = False
        default_permissions = ("view", "change")
        verbose_name = "schedule"
