"""Common parts of SQS and SNS: clients in threads, attributes, sizes, errors, batches of ten."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, TypeVar

from ..model.errors import InvalidOption
from .client_library import require_client
from .protocols import Bad, Limits, Message, Retry, SendOutcome, SinkDown
from .wire_headers import ID, from_wire, to_wire

T = TypeVar("T")

BATCH = 10  # entries of one call
MAX_BYTES = 262_144  # of one call; queues may be configured to accept more
MAX_ATTRIBUTES = 10
ENCODING = "outlast-encoding"  # "base64": the body is not a text that AWS accepts
CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 25  # above the longest poll
DEFAULT_LIMITS = Limits(items=BATCH, bytes=MAX_BYTES, parallel=8)

# Error codes about the messages that were sent. All others are about the account, the network or
# the queue: no message is at fault.
OF_MESSAGES = (
    "BatchRequestTooLong", "BatchEntryIdsNotDistinct", "InvalidBatchEntryId", "InvalidParameter",
    "InvalidMessageContents", "InvalidAttributeName", "InvalidAttributeValue", "ParameterValue",
)  # fmt: skip
TRANSIENT = (
    "Throttl",
    "OverLimit",
    "Kms",
    "KMS",
    "Unavailable",
    "InternalError",
    "InternalFailure",
)

_NOT_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"(?!(?i:aws|amazon)\.)(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,256}(?<!\.)\Z")
_GROUP = re.compile(r"[A-Za-z0-9!\"#$%&'()*+,./:;<=>?@\[\\\]^_`{|}~-]{1,128}\Z")


class Entry(NamedTuple):
    """One message in the form of AWS."""

    body: str
    attributes: dict[str, dict[str, str]]
    size: int


class AwsClient:
    """A boto3 client, whose calls run in threads of its own."""

    def __init__(self, service: str, endpoint: str | None, region: str | None, session: Any):
        require_client("boto3", "sqs", service.upper())
        self.service = service
        self._endpoint, self._region, self._session = endpoint, region, session
        self._client: object = None
        self._threads: ThreadPoolExecutor | None = None

    async def open(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=self.service)
        with outages():
            self._client = await self._in_thread(self._made)

    def _made(self) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"mode": "standard", "total_max_attempts": 2},
            max_pool_connections=32,
        )
        # A session for each client: the default session is not thread-safe.
        session = self._session or boto3.session.Session()
        return session.client(
            self.service, endpoint_url=self._endpoint, region_name=self._region, config=config
        )

    def close(self) -> None:
        """Close the client; calls in progress end by themselves."""
        threads, self._threads, self._client = self._threads, None, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    @property
    def boto(self) -> Any:
        if self._client is None:
            raise SinkDown("it is not open")
        return self._client

    async def call(self, method: str, **given: object) -> dict[str, Any]:
        with outages():
            answer: dict[str, Any] = await self._in_thread(getattr(self.boto, method), **given)
        return answer

    async def _in_thread(self, function: Callable[..., T], **given: object) -> T:
        if self._threads is None:
            raise SinkDown("it is not open")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: function(**given))


async def in_daemon_thread(function: Callable[[threading.Event], T]) -> T:
    """Call a function in a thread that delays neither a cancelled caller nor the end of the
    process. Its event is set once the caller no longer awaits the result."""
    loop, abandoned = asyncio.get_running_loop(), threading.Event()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = function(abandoned)
        except BaseException as raised:
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="long poll", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        abandoned.set()
        raise


# Messages


def entry_of(message: Message, most: int) -> Entry | Bad:
    """A message as an entry of a batch, unless it is too large or empty."""
    if not message.raw:
        return Bad("AWS accepts no message without a body")
    wire = to_wire(message, _fits, MAX_ATTRIBUTES - 2, taken=ENCODING)
    attributes = {ID: message.id, **wire}
    body = _text(message.raw)
    if body is None:
        body = base64.b64encode(message.raw).decode()
        attributes[ENCODING] = "base64"
    size = len(body.encode()) + sum(
        len(name.encode()) + len("String") + len(value.encode())
        for name, value in attributes.items()
    )
    if size > most:
        return Bad(f"{size:,} bytes with its attributes: a message may have {most:,}")
    typed = {
        name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()
    }
    return Entry(body, typed, size)


def fifo_fields(message: Message) -> dict[str, str]:
    """The fields for a FIFO queue: messages with a key form a group, any other its own group."""
    group = message.key if message.key is not None else message.id
    if not _GROUP.match(group):
        group = hashlib.sha256(group.encode("utf-8", "surrogatepass")).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": message.id}


def message_of(received: dict[str, Any]) -> Message:
    """A received message: its id is the attribute of an outbox, else the id of SQS."""
    attributes = {
        name: str(value.get("StringValue", ""))
        for name, value in received.get("MessageAttributes", {}).items()
        if value.get("DataType", "").startswith(("String", "Number"))
    }
    id = attributes.get(ID) or received["MessageId"]
    encoding = attributes.pop(ENCODING, None)
    key, headers = from_wire(attributes)
    raw = received["Body"].encode("utf-8", "surrogatepass")
    if encoding == "base64":
        with suppress(ValueError):  # an attribute of another program
            raw = base64.b64decode(raw, validate=True)
    if key is None:
        key = received.get("Attributes", {}).get("MessageGroupId")
    return Message(id, raw, key, headers, receipt=received["ReceiptHandle"])


def _text(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return None if _NOT_TEXT.search(text) else text


def _fits(name: str, value: str) -> bool:
    return bool(_NAME.match(name)) and bool(value) and not _NOT_TEXT.search(value)


# Batches


async def send_in_calls(
    messages: Sequence[Message],
    most: int,
    call: Callable[[list[tuple[int, Entry]]], Awaitable[dict[str, object]]],
) -> list[SendOutcome]:
    """Send messages in calls of up to ten entries and `most` bytes."""
    made = [entry_of(message, most) for message in messages]
    outcomes: list[SendOutcome] = [one if isinstance(one, Bad) else None for one in made]
    entries = [(position, one) for position, one in enumerate(made) if not isinstance(one, Bad)]
    for some in _calls(entries, most):
        answer = await call(some)
        for position, outcome in outcomes_of(answer, [position for position, _ in some]).items():
            outcomes[position] = outcome
    return outcomes


def _calls(entries: Sequence[tuple[int, Entry]], most: int) -> Iterator[list[tuple[int, Entry]]]:
    call: list[tuple[int, Entry]] = []
    size = 0
    for position, entry in entries:
        if call and (len(call) == BATCH or size + entry.size > most):
            yield call
            call, size = [], 0
        call.append((position, entry))
        size += entry.size
    if call:
        yield call


def outcomes_of(answer: dict[str, Any], positions: Sequence[int]) -> dict[int, SendOutcome]:
    """The outcome of each entry of a call. Entries are named by their position."""
    found: dict[int, SendOutcome] = {int(one["Id"]): None for one in answer.get("Successful", ())}
    for one in answer.get("Failed", ()):
        code = str(one.get("Code", ""))
        reason = f"{code}: {one.get('Message', '')}"
        bad = one.get("SenderFault") and not any(word in code for word in TRANSIENT)
        found[int(one["Id"])] = Bad(reason) if bad else Retry(reason)
    return {
        position: found.get(position, Retry("no result was returned")) for position in positions
    }


@contextmanager
def outages() -> Iterator[None]:
    """Raise errors that are not about a message as `SinkDown`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if any(word in code for word in OF_MESSAGES):
            raise
        raise SinkDown(f"{type(error).__name__}: {error}") from error
    except (BotoCoreError, OSError) as error:
        raise SinkDown(f"{type(error).__name__}: {error}") from error


def check_bytes(most: int) -> int:
    if not isinstance(most, int) or isinstance(most, bool) or not 1024 <= most <= 1_048_576:
        reason = f"must be a whole number from 1,024 to 1,048,576, not {most!r:.80}"
        raise InvalidOption(option="max_bytes", reason=reason)
    return most
