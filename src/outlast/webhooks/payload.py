"""The body of a webhook: type, timestamp and data.

It contains neither a job's arguments nor the traceback of its error. A result that is too long is
replaced by its size and the path where it can be read.
"""

from __future__ import annotations

import json
from urllib.parse import quote

from ..model.blob import Blob
from ..model.job import Job
from ..model.lifecycle import State
from ..tracing import current

JOB_TYPE_PREFIX = "job."  # reserved for Outlast's own messages
MAX_RESULT_BYTES = 16_384  # bytes of a result

JOB_FIELDS = (
    "id", "task", "queue", "state", "attempt", "tenant", "key", "flow", "created_at", "started_at",
    "finished_at",
)  # fmt: skip


def event_payload(type: str, data: object, delivery: Job) -> bytes:
    """A message with the sender's own data."""
    return _encode(type, delivery.created_at.isoformat(), data)


def job_payload(type: str, job: Job, delivery: Job) -> bytes:
    """A message about the end of a job. `state` is the current one: the job may have been retried
    since, and then there is neither result nor error."""
    job_json = job.as_json()
    data = {name: job_json[name] for name in JOB_FIELDS}
    if job.state is State.SUCCEEDED:
        data |= _result_field(job)
    elif job.state.final:
        error = job.error or {}
        data["error"] = {name: error.get(name) for name in ("type", "message")}
    return _encode(type, data["finished_at"] or delivery.created_at.isoformat(), data)


def headers(delivery: Job, about: Job | None) -> dict[str, str]:
    """The tenant and the number of attempts. (Not signed: the body has the signed facts.)"""
    values = {
        "outlast-attempt": str(delivery.attempt),
        "outlast-tenant": quote(delivery.tenant, safe=" "),
        "traceparent": current(delivery.trace),
        "outlast-job": about.id if about else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _result_field(job: Job) -> dict[str, object]:
    by_reference = isinstance(job.result, Blob)
    size = job.result.size if by_reference else len(json.dumps(job.result))
    if size <= MAX_RESULT_BYTES and not by_reference:
        return {"result": job.result}
    return {"result_bytes": size, "result_at": f"/api/v1/jobs/{job.id}/result"}


def _encode(type: str, timestamp: str, data: object) -> bytes:
    message = {"type": type, "timestamp": timestamp, "data": data}
    return json.dumps(message, separators=(",", ":")).encode()
