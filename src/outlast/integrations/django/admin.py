"""Admin pages: jobs, dead jobs and schedules, read and changed through `ol`.

The pages of a model need the permission to view it; its actions need the permission to change it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path

from ...model.errors import JobNotFound, OutlastError
from ...model.lifecycle import State
from .client import default_app
from .models import DeadJob, ScheduleEntry, StoredJob

PAGE_JOBS = 100

Actions = dict[str, tuple[str, Callable[[str], Any]]]  # by name: the log's text, and the function


class OutlastAdmin(admin.ModelAdmin):  # type: ignore[misc]
    """A list page and its actions; rows cannot be added, and are not read through the ORM."""

    list_template: str
    actions_here: ClassVar[Actions]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def get_urls(self) -> list[Any]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_changelist"
        return [path("", self.admin_site.admin_view(self.changelist_view), name=name)]

    def changelist_view(self, request: HttpRequest, extra_context: object = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._act(request, request.POST.getlist("selected"))
        return self._page(request, self.list_template, **self.listed(request))

    def listed(self, request: HttpRequest) -> dict[str, Any]:
        """The values of the template."""
        raise NotImplementedError

    def _page(self, request: HttpRequest, template: str, **values: object) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(self.opts.verbose_name_plural).capitalize(),
            "may_change": self.has_change_permission(request),
            **values,
        }
        return TemplateResponse(request, f"admin/outlast/{template}", context)

    def _act(self, request: HttpRequest, names: list[str]) -> HttpResponse:
        """Apply the form's action to each selected row."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        done, act = self.actions_here.get(request.POST.get("action", ""), ("", None))
        if act is None:
            raise Http404
        count = 0
        for name in names[:PAGE_JOBS]:
            try:
                act(name)
            except OutlastError as error:
                self.message_user(request, str(error), messages.ERROR)
            else:
                count += 1
                self.log_change(request, self.model(pk=name), done)
        if count:
            self.message_user(request, f"{done}: {count}", messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())


JOB_ACTIONS: Actions = {
    "retry": ("Retried", lambda id: default_app().retry(id)),
    "cancel": ("Cancelled", lambda id: default_app().cancel(id, "in the admin")),
}


@admin.register(StoredJob)
class JobAdmin(OutlastAdmin):
    list_template = "jobs.html"
    actions_here: ClassVar[Actions] = JOB_ACTIONS

    def get_urls(self) -> list[Any]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_change"
        view = self.admin_site.admin_view(self.job_view)
        return [*super().get_urls(), path("<uuid:id>/", view, name=name)]

    def listed(self, request: HttpRequest) -> dict[str, Any]:
        filters = {name: request.GET.get(name) or None for name in ("state", "queue", "task")}
        return listed_jobs(request, filters)

    def job_view(self, request: HttpRequest, id: object) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._act(request, [str(id)])
        ol = default_app()
        try:
            job = ol.job(str(id))
        except JobNotFound as error:
            raise Http404(str(error)) from error
        attempts, events = ol.history(job.id)
        return self._page(
            request,
            "job.html",
            title=f"Job {job.id}",
            job=job,
            arguments=_pretty(job.args),
            result=_pretty(job.result),
            explained=ol.explain(job.id),
            attempts=attempts,
            events=events[-PAGE_JOBS:],
            may_retry=job.state in (State.DEAD, State.CANCELLED),
            may_cancel=not job.state.final,
        )


@admin.register(DeadJob)
class DeadJobAdmin(OutlastAdmin):
    list_template = "jobs.html"
    actions_here: ClassVar[Actions] = {"retry": JOB_ACTIONS["retry"]}

    def listed(self, request: HttpRequest) -> dict[str, Any]:
        filters = {name: request.GET.get(name) or None for name in ("queue", "task")}
        return listed_jobs(request, {"state": "dead", **filters}) | {"only_dead": True}


@admin.register(ScheduleEntry)
class ScheduleAdmin(OutlastAdmin):
    list_template = "schedules.html"
    actions_here: ClassVar[Actions] = {
        "pause": ("Paused", lambda name: default_app().pause_schedule(name, "in the admin")),
        "resume": ("Resumed", lambda name: default_app().resume_schedule(name)),
        "run": ("Started", lambda name: default_app().run_schedule(name)),
    }

    def listed(self, request: HttpRequest) -> dict[str, Any]:
        after = request.GET.get("after") or None
        found = default_app().schedules(limit=PAGE_JOBS, after=after)
        last = found[-1].name if len(found) == PAGE_JOBS else None
        return {"schedules": found, "next_page": last}


def listed_jobs(request: HttpRequest, filters: dict[str, str | None]) -> dict[str, Any]:
    """A page of jobs, newest first; empty if the filters match none."""
    query = request.GET.copy()
    try:
        before = request.GET.get("before") or None
        jobs = default_app().jobs(before=before, limit=PAGE_JOBS, **filters)
    except OutlastError as error:
        messages.error(request, str(error))
        jobs = []
    if len(jobs) == PAGE_JOBS:
        query["before"] = jobs[-1].id
    next_page = query.urlencode() if len(jobs) == PAGE_JOBS else None
    return {"jobs": jobs, "filters": filters, "states": list(State), "next_page": next_page}


def _pretty(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
