"""What each page and form is called with in the matrix of who may call what."""

from __future__ import annotations

from typing import Any

A_QUEUE = {"queue": "mail"}
A_SCHEDULE = {"name": "sample"}
A_BRIDGE = {"kind": "outbox", "name": "sample"}
A_WORKER = {"worker": "somebody"}
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
    "live_jobs": {"params": {"state": "ready"}},
    "queues_page": {},
    "lanes_page": {"params": A_QUEUE},
    "workers_page": {},
    "recovery_page": {},
    "ask_pause_queue": {"params": A_QUEUE},
    "ask_close_breaker": {"params": A_QUEUE},
    "do_close_breaker": {"data": A_QUEUE},
    "ask_resume_queue": {"params": A_QUEUE},
    "do_pause_queue": {"data": A_QUEUE},
    "do_resume_queue": {"data": A_QUEUE},
    "ask_keep_queue": {"params": A_QUEUE},
    "do_keep_queue": {"data": A_QUEUE | {"keep": "2h"}},
    "bridges_page": {},
    "ask_pause_bridge": {"params": A_BRIDGE},
    "ask_resume_bridge": {"params": A_BRIDGE},
    "do_pause_bridge": {"data": A_BRIDGE},
    "do_resume_bridge": {"data": A_BRIDGE},
    "ask_drain_worker": {"params": A_WORKER},
    "ask_undrain_worker": {"params": A_WORKER},
    "do_drain_worker": {"data": A_WORKER},
    "do_undrain_worker": {"data": A_WORKER},
    "jobs_page": {"params": {"state": "ready", "text": "x"}},
    "ask_cancel_jobs": {"params": {"task": "nothing"}},
    "ask_redrive_jobs": {"params": {"error": "nothing"}},
    "do_cancel_jobs": {"data": {"task": "nothing"}},
    "do_redrive_jobs": {"data": {"task": "nothing"}},
    "ask_purge_jobs": {"params": {"task": "nothing", "state": "dead"}},
    "do_purge_jobs": {"data": {"task": "nothing", "state": "dead"}},
    "ask_reschedule_jobs": {"params": {"task": "nothing", "state": "ready"}},
    "do_reschedule_jobs": {"data": {"task": "nothing", "state": "ready", "when": "2h"}},
    "ask_prioritize_jobs": {"params": {"task": "nothing"}},
    "do_prioritize_jobs": {"data": {"task": "nothing", "priority": "5"}},
    "ask_move_jobs": {"params": {"task": "nothing", "queue": "mail"}},
    "do_move_jobs": {"data": {"task": "nothing", "queue": "a", "to": "mail"}},
    "job_page": {},
    "ask_cancel_job": {},
    "ask_redrive_job": {},
    "do_cancel_job": {"data": {"reason": "none"}},
    "do_redrive_job": EMPTY_FORM,
    "ask_reclaim_job": {},
    "do_reclaim_job": EMPTY_FORM,
    "ask_forget_job": {},
    "do_forget_job": EMPTY_FORM,
    "do_signal_job": EMPTY_FORM,
    "flows_page": {},
    "flow_page": {},
    "ask_cancel_flow": {},
    "ask_redrive_flow": {},
    "do_cancel_flow": EMPTY_FORM,
    "do_redrive_flow": EMPTY_FORM,
    "dead_page": {},
    "schedule_page": {},
    "schedules_page": {},
    "ask_pause_schedule": {"params": A_SCHEDULE},
    "do_pause_schedule": {"data": A_SCHEDULE | {"reason": "none"}},
    "ask_resume_schedule": {"params": A_SCHEDULE},
    "do_resume_schedule": {"data": A_SCHEDULE},
    "ask_run_schedule": {"params": A_SCHEDULE},
    "do_run_schedule": {"data": A_SCHEDULE},
    "ask_skip_schedule": {"params": A_SCHEDULE},
    "do_skip_schedule": {"data": A_SCHEDULE},
    "tokens_page": {},
    "do_create_token": {"data": {"name": "made", "read": "on"}},
    "ask_revoke_token": {},
    "do_revoke_token": EMPTY_FORM,
}

# Of these, those that name a queue: a token for other queues is refused.
NAMED_QUEUE = {
    "lanes_page", "ask_pause_queue", "ask_resume_queue", "ask_keep_queue",
    "do_pause_queue", "do_resume_queue", "do_keep_queue", "do_move_jobs",
    "ask_close_breaker", "do_close_breaker",
    "ask_pause_bridge", "ask_resume_bridge", "do_pause_bridge", "do_resume_bridge",
}  # fmt: skip

# Whoever is kept to some queues could make a token that is not; a worker serves several.
ALL_QUEUES = {
    "tokens_page", "do_create_token", "ask_revoke_token", "do_revoke_token",
    "ask_drain_worker", "ask_undrain_worker", "do_drain_worker", "do_undrain_worker",
}  # fmt: skip
