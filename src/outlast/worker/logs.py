"""Log handler that never blocks the worker, and formatters that mask secrets.

Lines go through a bounded queue to a thread that writes them. If the reader of the stream stops
reading, the queue fills up, further lines are dropped and counted, and the count is logged when
there is room again. Arguments and results are never logged; secrets that an error message quotes
are masked.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from ..model.safe_text import storable_text

# Fields of a line about a job; those in the second row are about its end.
JOB_FIELDS = (
    "job", "task", "queue", "attempt", "fence", "tenant", "trace",
    "outcome", "state", "error_type", "error_message", "traceback", "duration",
)  # fmt: skip
QUOTING_FIELDS = {"error_message", "traceback"}  # may quote secrets
MAX_QUEUED_LINES = 10_000
MAX_LINE_LENGTH = 20_000  # characters of one line
MAX_READ_LENGTH = 10 * MAX_LINE_LENGTH  # characters that are scanned for secrets
FLUSH_WAIT_S = 0.5  # seconds at exit to write queued lines
STDERR = 2

_SECRETS = r"(?:passw(?:or)?d|pwd|secret|token|api[_-]?key|authorization|credential)"
# All repetitions are bounded: a log line may be as long as a file.
_NAME = rf"{_SECRETS}[\w-]{{0,40}}"
_VALUE = r"""(?:"[^"]{0,999}"?|'[^']{0,999}'?|(?:bearer|basic)\s+\S{1,999}|[^\s,;&)}\]]{1,999})"""
_COUNTED = re.compile(
    r"tokens?$|(?:count|total|length|len|size|limit|bytes|ttl|age|seconds)$", re.I
)
_NO_VALUES = frozenset({"true", "false", "none", "null", "nan", ""})
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,12})?")


def _masked_pair(found: re.Match[str]) -> str:
    """Mask the value of a pair, as in `password=***`, unless it is not a secret."""
    name, separator, value = found["name"], found["separator"], found["value"]
    before = found.string[max(0, found.start() - 4) : found.start()]
    keeps = _is_no_secret(before, name, value)
    return found[0] if keeps else f"{name}{separator}***"


def _is_no_secret(before: str, name: str, value: str) -> bool:
    """Whether a value is not a secret although its name looks like one: `events_per_token=100`,
    `max_tokens: 4096`, `token_count=7`, `token_expired: True`, `unexpected token: <`."""
    plain = value.strip("'\"")
    if plain.lower() in _NO_VALUES or (len(plain) <= 2 and not re.search(r"\w", plain)):
        return True
    if not _NUMBER.fullmatch(plain):
        return False
    counted = _COUNTED.search(name)
    one = name.lower().rstrip("'\"") == "token"  # a token may be a number; one per token is not
    return bool(counted) and (not one or before.lower() == "per_")


_MASKS: list[tuple[list[str], re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    # ://user:secret@host
    (["://"], re.compile(r"(://[^\s:/@]{0,99}):[^\s/]{1,999}@"), r"\1:***@"),
    # password=…, "token": …
    (
        ["passw", "pwd", "secret", "token", "api", "authorization", "credential"],
        re.compile(
            rf"""(?P<name>{_NAME})(?P<separator>['"]?\s{{0,9}}[=:]\s{{0,9}})(?P<value>{_VALUE})""",
            re.IGNORECASE,
        ),
        _masked_pair,
    ),
    (
        ["bearer", "basic"],
        re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,999}", re.IGNORECASE),
        r"\1 ***",
    ),
]
_CONTROLS = {code: repr(chr(code))[1:-1] for code in (*range(32), 127) if chr(code) != "\t"}


def set_up(level: str | int = "info", format: str = "text", fd: int = STDERR) -> None:
    """Send the log of this process to a file descriptor, as `text` for people or as `json` lines;
    `none` leaves logging to the program.

    A second call replaces the first; other log handlers are left alone.
    """
    formatters = {"text": TextFormatter, "json": JsonFormatter}
    tear_down()
    if format == "none":
        return
    if format not in formatters:
        raise ValueError(f"the log format must be text or json (or none), not {format!r}")
    handler = QueuedHandler(fd)
    handler.setFormatter(formatters[format]())
    root = logging.getLogger()
    handler.previous = root.level
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # at info, it logs the URL of every call


def tear_down() -> None:
    """Undo `set_up`, if it was called."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, QueuedHandler)]:
        root.removeHandler(handler)
        root.setLevel(handler.previous)
        handler.close()


def dropped() -> int:
    """The number of log lines that this process has dropped because the stream was full."""
    return sum(
        one.dropped for one in logging.getLogger().handlers if isinstance(one, QueuedHandler)
    )


def redact(text: str) -> str:
    """Mask likely secrets in a text; cut the middle out of a long one."""
    text = text[:MAX_READ_LENGTH]
    lowered = text.lower()
    for hints, pattern, masked in _MASKS:
        if any(hint in lowered for hint in hints):  # a quick test: most lines have no secret
            text = pattern.sub(masked, text)
    return storable_text(text, MAX_LINE_LENGTH)


class QueuedHandler(logging.Handler):
    """Log handler that passes formatted lines to a thread, so that a slow reader blocks no
    caller."""

    def __init__(self, fd: int = STDERR, capacity: int = MAX_QUEUED_LINES) -> None:
        super().__init__()
        self.previous = logging.NOTSET  # the root's level
        self.dropped = 0  # lines in total
        self._reported_drops = 0  # of these, the lines whose loss is logged
        self._fd = fd
        self._capacity = capacity
        self._pid = 0
        self._queue: queue.Queue[bytes | None]
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        line = self._line(record)
        if self._pid != os.getpid():
            self._start()
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self.dropped += 1

    def _line(self, record: logging.LogRecord) -> bytes:
        try:
            text = self.format(record)
        except Exception as error:  # the arguments do not fit the message
            text = self.format(_record(f"a log line could not be formatted: {error}", record.name))
        return (text + "\n").encode()

    def _start(self) -> None:
        """Start the thread, at the first line and after a fork, which no thread or lock
        survives."""
        self._pid = os.getpid()
        self._queue = queue.Queue(self._capacity)
        self._thread = threading.Thread(target=self._write, name="outlast-log", daemon=True)
        self._thread.start()

    def _write(self) -> None:
        while (line := self._queue.get()) is not None:
            self._put(line)
            if missing := self.dropped - self._reported_drops:
                self._reported_drops += missing
                message = f"{missing} log lines were dropped: the output was blocked"
                self._put(self._line(_record(message)))

    def _put(self, line: bytes) -> None:
        # Not through sys.stderr: its lock, held by a blocked write, would abort the interpreter's
        # exit. A broken pipe has no reader left, so the error is ignored.
        with suppress(OSError):
            while line:
                try:
                    line = line[os.write(self._fd, line) :]
                except BlockingIOError:  # another process made the descriptor non-blocking
                    time.sleep(0.05)

    def close(self) -> None:
        """Write queued lines, within a time limit. Called by `logging` at exit."""
        super().close()
        thread, self._thread = self._thread, None
        if thread is not None and self._pid == os.getpid():
            deadline = time.monotonic() + FLUSH_WAIT_S
            with suppress(queue.Full):
                self._queue.put(None, timeout=FLUSH_WAIT_S)
            thread.join(max(0.0, deadline - time.monotonic()))


class TextFormatter(logging.Formatter):
    """Text format: `12:00:00.123 WARNING outlast.worker: …`, one line except for tracebacks."""

    default_time_format = "%H:%M:%S"
    default_msec_format = "%s.%03d"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if traceback := getattr(record, "traceback", None):  # of a handler
            text = f"{text}\n{str(traceback).rstrip()}"
        return redact(text)

    def formatMessage(self, record: logging.LogRecord) -> str:
        # Text from an error must not imitate a log line or control the terminal.
        return super().formatMessage(record).translate(_CONTROLS)


class JsonFormatter(logging.Formatter):
    """JSON format: one object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name in JOB_FIELDS:
            if (value := getattr(record, name, None)) is not None:
                line[name] = redact(value) if name in QUOTING_FIELDS else value
        if record.exc_info:
            line["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def _record(message: str, name: str = "outlast.log") -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, __file__, 0, message, None, None)
