"""`app.conf`: Celery's settings.

A setting is honoured, ignored (Outlast always behaves so, or has no such part), or refused with an
alternative. An unknown name is refused, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import tzinfo
from fnmatch import translate
from typing import Any
from zoneinfo import ZoneInfo

from ...model.errors import InvalidOption
from ...model.options import MAX_PRIORITY, check_whole
from ...model.spelling import unknown_option

DEFAULTS: dict[str, object] = {
    "accept_content": ["json"],
    "beat_schedule": {},
    "broker_url": None,  # for `drain_queue`, and for the direction of priorities
    "enable_utc": True,
    "imports": (),
    "include": (),
    "result_backend": None,
    "result_serializer": "json",
    "task_acks_late": True,
    "task_always_eager": False,
    "task_default_priority": None,
    "task_default_queue": "celery",
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_routes": None,
    "task_serializer": "json",
    "task_time_limit": None,
    "timezone": None,
}
# Ignored: Outlast always behaves so, or has no such part.
WITHOUT_EFFECT = frozenset(
    """
    beat_max_loop_interval beat_schedule_filename beat_scheduler beat_sync_every
    broker_connection_max_retries broker_connection_retry broker_connection_retry_on_startup
    broker_connection_timeout broker_heartbeat broker_pool_limit broker_transport_options
    redis_max_connections redis_socket_timeout redis_backend_health_check_interval
    result_backend_transport_options result_expires result_extended result_persistent
    task_create_missing_queues task_default_delivery_mode task_default_exchange
    task_default_exchange_type task_default_routing_key task_publish_retry
    task_publish_retry_policy task_reject_on_worker_lost task_send_sent_event
    task_store_errors_even_if_ignored task_store_eager_result task_track_started
    worker_cancel_long_running_tasks_on_connection_loss worker_concurrency
    worker_enable_remote_control worker_hijack_root_logger worker_log_color worker_log_format
    worker_max_memory_per_child worker_max_tasks_per_child worker_pool worker_prefetch_multiplier
    worker_proc_alive_timeout worker_redirect_stdouts worker_send_task_events
    worker_state_db worker_task_log_format
    """.split()
)
REFUSED = {
    "task_soft_time_limit": "set task_time_limit, and check self.request.outlast.cancelled",
    "task_annotations": "set the options on the tasks",
    "task_default_rate_limit": 'limit the queue for all workers: app.ol.queue(name, rate="100/m")',
    "task_queues": "queues need no declaration: omit it, and name them in task_routes",
    "task_queue_max_priority": "omit it: priorities work without it",
    "task_compression": "omit it; see large payloads",
    "task_cls": "give tasks base=…",
    "task_protocol": "omit it: jobs are rows",
    "result_compression": "omit it; see large payloads",
    "result_chord_ordered": "omit it: results of a group are in order",
}
OLD_PREFIXES = ("BROKER_", "CELERY_", "CELERYBEAT_", "CELERYD_")
JSON_ONLY = ("task_serializer", "result_serializer")
JSON_NAMES = ("json", "application/json")

ROUTE_OPTIONS = ("queue", "priority", "expires", "time_limit")


class CeleryConf:
    """Settings as attributes, as items, or by `update(…)`."""

    def __init__(self) -> None:
        vars(self)["_given"] = {}

    def __getattr__(self, name: str) -> Any:
        if name in self._given:
            return self._given[name]
        if name in DEFAULTS:
            return DEFAULTS[name]
        if name in WITHOUT_EFFECT:
            return None
        raise AttributeError(f"app.conf has no setting {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        self._given[name] = _checked(name, value)

    __getitem__ = __getattr__
    __setitem__ = __setattr__

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def update(self, *given: Mapping[str, object], **more: object) -> None:
        for name, value in {**dict(*given), **more}.items():
            self[name] = value

    @property
    def zone(self) -> tzinfo:
        """The time zone of naive times and of crontabs."""
        zone = self.timezone
        return zone if isinstance(zone, tzinfo) else ZoneInfo(zone or "UTC")

    @property
    def zone_name(self) -> str:
        return str(getattr(self.zone, "key", None) or self.zone)

    def route(self, task: str) -> Mapping[str, Any]:
        """The options of a task from the first matching pattern of `task_routes`."""
        for pattern, options in _routes(self.task_routes):
            if pattern.fullmatch(task):
                return options
        return {}

    def priority(self, given: int | None) -> int | None:
        """Celery's priority as a job's. With Redis, 0 is the highest, with RabbitMQ the lowest."""
        if not given:
            return given
        check_whole("priority", given, 0, 255)
        first_is_low = str(self.broker_url or "").startswith(("redis", "sentinel", "unix"))
        return max(-given, -MAX_PRIORITY) if first_is_low else min(given, MAX_PRIORITY)


def refuse_old_names(given: Iterable[str]) -> None:
    """Refuse upper-case settings of Celery before version 4, instead of ignoring them silently."""
    if old := sorted(name for name in given if name.startswith(OLD_PREFIXES) and name.isupper()):
        raise InvalidOption(
            option=old[0],
            reason="is a name of Celery 3: use the lower-case one (`celery upgrade settings`), or"
            " give a namespace",
        )


def _checked(name: str, value: Any) -> object:
    if name in REFUSED:
        raise InvalidOption(option=f"app.conf.{name}", reason=f"is not supported: {REFUSED[name]}")
    if name not in DEFAULTS and name not in WITHOUT_EFFECT:
        raise unknown_option(name, sorted({*DEFAULTS, *WITHOUT_EFFECT}), "app.conf")
    if name in JSON_ONLY and value not in JSON_NAMES:
        raise InvalidOption(option=f"app.conf.{name}", reason=f"must be 'json', not {value!r:.80}")
    if name == "accept_content" and set(value) - set(JSON_NAMES):
        raise InvalidOption(option="app.conf.accept_content", reason="must be ['json']")
    if name == "task_routes":
        _routes(value)
    return value


def _routes(given: object) -> list[tuple[re.Pattern[str], Mapping[str, object]]]:
    """Patterns with `*`, or regular expressions, with the options of matching tasks."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        if callable(given) or isinstance(given, str) or not isinstance(given, Iterable):
            raise _unsupported_route(given)
        return [pair for one in given for pair in _route_items(one)]
    return [_route(name, options) for name, options in given.items()]


def _route_items(one: object) -> list[tuple[re.Pattern[str], Mapping[str, object]]]:
    if isinstance(one, Mapping):
        return _routes(one)
    if isinstance(one, tuple | list) and len(one) == 2 and not callable(one[0]):
        return [_route(*one)]
    if isinstance(one, Iterable) and not isinstance(one, str):
        return [pair for inner in one for pair in _route_items(inner)]
    raise _unsupported_route(one)


def _route(name: object, options: object) -> tuple[re.Pattern[str], Mapping[str, object]]:
    options = {"queue": options} if isinstance(options, str) else options
    if not isinstance(options, Mapping):
        raise _unsupported_route(options)
    for option in options:
        if option not in ROUTE_OPTIONS:
            reason = f"may have {', '.join(ROUTE_OPTIONS)}, not {option!r:.80}"
            raise InvalidOption(option="app.conf.task_routes", reason=reason)
    return (name if isinstance(name, re.Pattern) else re.compile(translate(str(name)))), options


def _unsupported_route(given: object) -> InvalidOption:
    return InvalidOption(
        option="app.conf.task_routes",
        reason=f'must map names to {{"queue": …}}, not {given!r:.80}: router functions are not'
        " supported; give the tasks queue=…",
    )
