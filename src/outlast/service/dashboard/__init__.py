"""The dashboard: pages rendered on the server, complete without JavaScript, live with it.

In reading order:

    links         URLs with the prefix that the service is mounted under
    formatting    template filters for times, durations, numbers and states
    templates     the template environment: everything is escaped
    pages         rendering of pages;  layout  the menu, theme and user of each
    flashes       the result of an action, shown once on the next page
    confirm       confirmation of actions, and the redirect afterwards
    error_pages   errors as pages, and the login page
    static_files  style sheets and scripts, with a content hash
    themes        light, dark or the system's
    live_view     the snapshot that live pages show, read once for all viewers
    live_lists    lists of jobs that are being viewed, each read once for all viewers
    live_parts    parts of pages as a stream
    cards         tables that are cards on a phone
    ranges        an hour, a day, a week in steps;  histories  reads them
    trends        charts over a range;  charts  lines as SVG
    filters       filters of jobs, in the query string
    bulk          actions on all matching jobs, in small steps;  bulk_changes  more of them
    bridges       outboxes and sources
    job_actions, queue_actions   actions on one job or queue
    timeline      a job's attempts on a timeline;  event_lines  its events as text
    flow_layout   the layout of a flow as a graph

A page is a small module with `ROUTES`, a function that reads its data by operations (with the
caller's reach in each) and a template. It is listed in `ROUTES` below, and, if it belongs in the
menu, in `layout.MENU`.
"""

from __future__ import annotations

from ..route import Route
from . import (
    bridges,
    bulk,
    bulk_changes,
    dead_letters,
    error_pages,
    flows,
    job,
    jobs,
    overview,
    queues,
    recovery,
    schedule,
    schedules,
    static_files,
    themes,
    tokens,
    workers,
)

ROUTES: tuple[Route, ...] = (
    *static_files.ROUTES,
    *error_pages.ROUTES,
    *themes.ROUTES,
    *overview.ROUTES,
    *jobs.ROUTES,
    *bulk.ROUTES,
    *bulk_changes.ROUTES,
    *job.ROUTES,
    *flows.ROUTES,
    *dead_letters.ROUTES,
    *queues.ROUTES,
    *bridges.ROUTES,
    *workers.ROUTES,
    *recovery.ROUTES,
    *schedule.ROUTES,
    *schedules.ROUTES,
    *tokens.ROUTES,
)
