"""The dashboard: pages made on the server, complete without JavaScript, alive with it.

In reading order:

    links        every address goes through one helper: the service may be mounted anywhere
    words        times, spans, numbers and states as people read them
    templates    the environment that pages are made in: everything is escaped, nothing is guessed
    pages        what a page is: a template, some facts, and the frame around them
    flashes      what an action did is told on the next page
    acting       every action asks once, is on record, and says what it did
    refusals     what goes wrong, as a page; who is not known yet is asked for a token
    statics      style and script, named by what they hold
    themes       light, dark, or as the system has it
    live         what pages show of this moment, looked up once for all who look
    streams      and sent to them whenever it is new
    ranges       an hour, a day, a week in the steps that charts show;  histories  reads them
    trends       how it went, as charts;  charts  lines over time, as SVG
    wanted       which jobs a page is about: a filter that is its address
    bulk         what is done to all of them, counted first, in small steps
    job_actions, queue_actions   what is done to one of them
    timeline     a job's attempts on a line of time;  told  its events in words
    flow_graph   a flow as a picture

A page is a small module with `ROUTES`, a function that gathers facts by operations (with the
caller's reach in every one) and a template. It is listed in `ROUTES` below, and, if it belongs in
the menu, in `frame.MENU`.
"""

from __future__ import annotations

from ..route import Route
from . import (
    bulk,
    dead,
    flows,
    job,
    jobs,
    overview,
    queues,
    recovery,
    refusals,
    schedule,
    statics,
    themes,
    tokens,
    workers,
)

ROUTES: tuple[Route, ...] = (
    *statics.ROUTES,
    *refusals.ROUTES,
    *themes.ROUTES,
    *overview.ROUTES,
    *jobs.ROUTES,
    *bulk.ROUTES,
    *job.ROUTES,
    *flows.ROUTES,
    *dead.ROUTES,
    *queues.ROUTES,
    *workers.ROUTES,
    *recovery.ROUTES,
    *schedule.ROUTES,
    *tokens.ROUTES,
)
