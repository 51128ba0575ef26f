"""Every page that there is, by the route that serves it: one that is missing here is found."""

from __future__ import annotations

from outlast.service.dashboard import ROUTES
from outlast.service.route import HTML, Route

# Where a page is. `{running}` and the like are jobs of the stage, `{flow}` its first flow.
PAGES: dict[str, list[str]] = {
    "jobs_page": ["/jobs", "/jobs?state=dead&text=x&queue=none", "/jobs?state=dead&sort=-ended"],
    "ask_cancel_jobs": ["/jobs/cancel", "/jobs/cancel?ids={running},{dead}"],
    "ask_redrive_jobs": ["/jobs/redrive?state=dead", "/jobs/redrive?chosen=true"],
    "ask_purge_jobs": ["/jobs/purge?state=dead", "/jobs/purge"],
    "ask_reschedule_jobs": ["/jobs/reschedule?state=ready", "/jobs/reschedule"],
    "ask_prioritize_jobs": ["/jobs/prioritize"],
    "ask_move_jobs": ["/jobs/move?queue=mail", "/jobs/move"],
    "job_page": ["/jobs/{running}", "/jobs/{dead}"],
    "ask_cancel_job": ["/jobs/{running}/cancel"],
    "ask_redrive_job": ["/jobs/{dead}/redrive"],
    "ask_reclaim_job": ["/jobs/{running}/reclaim"],
    "ask_forget_job": ["/jobs/{dead}/forget"],
    "flows_page": ["/flows"],
    "flow_page": ["/flows/{flow}"],
    "ask_cancel_flow": ["/flows/{flow}/cancel"],
    "ask_redrive_flow": ["/flows/{flow}/redrive"],
    "dead_page": ["/dead"],
    "queues_page": ["/queues", "/queues?text=none&sort=ready"],
    "ask_pause_queue": ["/queues/pause?queue=mail"],
    "ask_resume_queue": ["/queues/resume?queue=mail"],
    "ask_keep_queue": ["/queues/keep?queue=mail"],
    "ask_close_breaker": ["/queues/close-breaker?queue=mail"],
    "lanes_page": ["/queues/lanes?queue=mail"],
    "schedule_page": ["/schedule"],
    "schedules_page": ["/schedules"],
    "ask_pause_schedule": ["/schedules/pause?name=nightly"],
    "ask_resume_schedule": ["/schedules/resume?name=nightly"],
    "ask_run_schedule": ["/schedules/run?name=nightly"],
    "ask_skip_schedule": ["/schedules/skip?name=nightly"],
    "tokens_page": ["/tokens"],
    "ask_revoke_token": ["/tokens/{token}/revoke"],
    "overview_page": ["/", "/?range=day", "/?range=week"],
    "workers_page": ["/workers"],
    "ask_drain_worker": ["/workers/drain?worker=worker-1"],
    "ask_undrain_worker": ["/workers/undrain?worker=worker-1"],
    "bridges_page": ["/bridges"],
    "ask_pause_bridge": ["/bridges/pause?kind=outbox&name=orders"],
    "ask_resume_bridge": ["/bridges/resume?kind=source&name=mail"],
    "recovery_page": ["/recovery"],
}
ELSEWHERE = {"login_page"}  # whoever is logged in is sent on from it


def page_routes() -> list[Route]:
    return [route for route in ROUTES if route.media == (HTML,) and not route.changes]


def paths(**names: str) -> list[str]:
    """The address of every page, with these names in the place of what they stand for."""
    known = {route.name for route in page_routes()} - ELSEWHERE
    found = [path for name, paths in PAGES.items() if name in known for path in paths]
    for name, value in names.items():
        found = [path.replace("{" + name + "}", value) for path in found]
    return found
