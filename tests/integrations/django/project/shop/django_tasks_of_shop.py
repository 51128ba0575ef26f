"""Tasks by Django's own decorator, in a module that no autodiscovery finds."""

import django

if django.VERSION < (6, 0):
    from django_tasks import task
else:
    from django.tasks import task


@task
def elsewhere():
    return 1
