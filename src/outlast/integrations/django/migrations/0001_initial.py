"""Create Outlast's tables: version 1 of `outlast migrate`, on Django's connection."""

from __future__ import annotations

from django.db import migrations, models

from outlast.integrations.django.schema import create_tables

_UNMANAGED = {"managed": False, "default_permissions": ("view", "change")}


class Migration(migrations.Migration):  # type: ignore[misc]
    initial = True
    dependencies: list[tuple[str, str]] = []
    operations = [
        migrations.CreateModel(
            "StoredJob",
            [("id", models.UUIDField(primary_key=True, serialize=False))],
            options={**_UNMANAGED, "verbose_name": "job"},
        ),
        migrations.CreateModel(
            "DeadJob",
            [("id", models.UUIDField(primary_key=True, serialize=False))],
            options={**_UNMANAGED, "verbose_name": "dead job"},
        ),
        migrations.CreateModel(
            "ScheduleEntry",
            [("name", models.CharField(max_length=200, primary_key=True, serialize=False))],
            options={**_UNMANAGED, "verbose_name": "schedule"},
        ),
        migrations.RunPython(create_tables),
    ]
