"""What each page and form is called with in the matrix of who may call what."""

from __future__ import annotations

from typing import Any

A_QUEUE = {"queue": "mail"}
EMPTY_FORM = {
    "content": b"",
    "headers": {"content-type": "application/x-www-form-urlencoded"},
}

SAMPLES: dict[str, dict[str, Any]] = {
    "static_file": {},
    "login_page": {},
    "set_theme": {"data": {"theme": "dark"}},
    "overview_page": {},
    "live_overview": {},
    "queues_page": {},
    "workers_page": {},
    "recovery_page": {},
    "ask_pause_queue": {"params": A_QUEUE},
    "ask_resume_queue": {"params": A_QUEUE},
    "do_pause_queue": {"data": A_QUEUE},
    "do_resume_queue": {"data": A_QUEUE},
    "jobs_page": {"params": {"state": "ready", "text": "x"}},
    "ask_cancel_jobs": {"params": {"task": "nothing"}},
    "ask_redrive_jobs": {"params": {"error": "nothing"}},
    "do_cancel_jobs": {"data": {"task": "nothing"}},
    "do_redrive_jobs": {"data": {"task": "nothing"}},
    "job_page": {},
    "ask_cancel_job": {},
    "ask_redrive_job": {},
    "do_cancel_job": {"data": {"reason": "none"}},
    "do_redrive_job": EMPTY_FORM,
    "flows_page": {},
    "flow_page": {},
    "ask_cancel_flow": {},
    "ask_redrive_flow": {},
    "do_cancel_flow": EMPTY_FORM,
    "do_redrive_flow": EMPTY_FORM,
    "dead_page": {},
    "schedule_page": {},
    "tokens_page": {},
    "do_create_token": {"data": {"name": "made", "read": "on"}},
    "ask_revoke_token": {},
    "do_revoke_token": EMPTY_FORM,
}

# Of these, those that name a queue: a token for other queues is refused.
NAMED_QUEUE = {"ask_pause_queue", "ask_resume_queue", "do_pause_queue", "do_resume_queue"}

# Whoever is kept to some queues could make a token that is not.
ALL_QUEUES = {"tokens_page", "do_create_token", "ask_revoke_token", "do_revoke_token"}
