"""Messages of real Celery producers become jobs, each once, through a real Redis and RabbitMQ."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiormq
import celery
import pytest

from outlast import Job, Unsupported
from outlast.bridges import SinkDown
from outlast.integrations.celery import AsyncResult, Celery, CeleryQueue
from tests.support import Database, aeventually
from tests.support.brokers import RabbitServer
from tests.support.redis import RedisServer
from tests.worker.working import sql, work

WAIT_S = 0.5

# Celery's producers leave sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(params=["redis", "rabbit"])
def broker(request: pytest.FixtureRequest) -> str:
    """The URL of an empty broker."""
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis")
        return redis.url
    rabbit: RabbitServer = request.getfixturevalue("rabbit_server")
    empty(rabbit.url, "celery", "outlast.celery")
    return rabbit.url


def empty(url: str, *queues: str) -> None:
    with celery.Celery(broker=url).connection_for_write() as connection:
        for name in queues:
            connection.default_channel.queue_delete(name)


@pytest.fixture
def producer(broker: str) -> Iterator[celery.Celery]:
    """Celery, in the web application that still enqueues with it."""
    app = celery.Celery("old", broker=broker, set_as_current=False)
    app.conf.task_ignore_result = True
    with app.connection_for_write() as connection:
        app.amqp.queues["celery"].bind(connection.default_channel).declare()
    yield app
    app.close()


@pytest.fixture
def app(database: Database, broker: str) -> Iterator[Celery]:
    """The moved app; `ran` has what its tasks were called with."""
    moved = Celery("shop", broker=broker, url=database.url, schema=database.schema)
    moved.ol.migrate()
    moved.ran = []  # type: ignore[attr-defined]

    @moved.task(name="shop.add")
    def add(x: Any, y: int = 0) -> Any:
        moved.ran.append((x, y))
        return x + y

    @moved.task(name="shop.again", bind=True, max_retries=3)
    def again(self: Any) -> int:
        if self.request.retries < 3:
            raise self.retry(countdown=0)
        return int(self.request.retries)

    @moved.task(name="shop.fail")
    def fail() -> None:
        raise ValueError("no stock")

    @moved.task(name="shop.errback")
    def errback(task_id: str) -> None:
        moved.ran.append(task_id)

    moved.drain_queue(wait=WAIT_S, **({"idle": 0.5} if broker.startswith("redis") else {}))
    yield moved
    moved.close()


async def ends(app: Celery, *ids: str) -> list[Job]:
    """The jobs of these tasks, once they have ended."""
    results = [AsyncResult(id, app) for id in ids]
    await aeventually(lambda: all(one.ready() for one in results))
    return [one.job() for one in results]


async def test_messages_become_jobs_of_their_tasks(app: Celery, producer: celery.Celery) -> None:
    """With their ids, times, retries and priorities, and what follows them."""
    of_redis = app.conf.broker_url.startswith("redis")
    plain = producer.send_task("shop.add", (1,), {"y": 2}).id
    late = producer.send_task("shop.add", (1, 1), countdown=3600, priority=3).id
    gone = producer.send_task("shop.add", (1, 1), expires=datetime.now(UTC) - timedelta(1)).id
    tried = producer.send_task("shop.again", retries=2).id
    own = producer.send_task("shop.add", (5, 5), task_id="order-7").id
    unknown = producer.send_task("shop.later", (1,)).id
    async with work(app.ol):
        jobs = await ends(app, plain, tried, own, *([gone] if of_redis else []))
        await aeventually(lambda: AsyncResult(unknown, app).job().state == "ready")
    assert [job.state for job in jobs[:3]] == ["succeeded"] * 3
    assert [job.state for job in jobs[3:]] == ["cancelled"] * of_redis  # RabbitMQ drops it itself
    assert jobs[0].id == plain and jobs[0].result == 3 and jobs[0].queue == "celery"
    assert jobs[1].result == 3 and jobs[1].attempt == 2  # one retry more, of three
    assert AsyncResult("order-7", app).get() == 10
    delayed = AsyncResult(late, app).job()
    assert delayed.state == "scheduled" and delayed.run_at > datetime.now(UTC) + timedelta(
        minutes=50
    )
    assert delayed.priority == (-3 if of_redis else 3)
    assert app.ol.counts()["succeeded"] == 3


async def test_chains_and_callbacks_go_on(app: Celery, producer: celery.Celery) -> None:
    add = producer.signature("shop.add", (1, 1))
    chained = celery.chain(
        add, producer.signature("shop.add", (10,)), producer.signature("shop.add", (100,))
    )
    last = chained.apply_async(link_error=producer.signature("shop.errback")).id
    failed = producer.send_task("shop.fail", link_error=producer.signature("shop.errback")).id
    linked = producer.send_task("shop.add", (2, 2), link=producer.signature("shop.add", (3,))).id
    async with work(app.ol):
        await ends(app, last, failed, linked)
        await aeventually(lambda: {failed, (4, 3)} <= set(app.ran))
    assert AsyncResult(last, app).get() == 112
    assert AsyncResult(failed, app).state == "FAILURE"
    assert [one for one in app.ran if isinstance(one, str)] == [failed]


async def test_what_cannot_be_a_job_is_dead_with_its_body(
    app: Celery, producer: celery.Celery, database: Database
) -> None:
    """Pickle is not read, a chord is not broken silently, garbage stops nothing."""
    from kombu.serialization import enable_insecure_serializers

    enable_insecure_serializers()
    pickled = producer.send_task("shop.add", (1, 1), serializer="pickle").id
    member = producer.send_task("shop.add", (1, 1), chord={"task": "x"}).id
    with producer.connection_for_write() as connection:
        connection.SimpleQueue("celery").put("hello", serializer="raw", headers={})
    good = producer.send_task("shop.add", (1, 1)).id
    async with work(app.ol):
        await ends(app, good)
        await aeventually(lambda: app.ol.counts()["dead"] == 3)
    assert app.ran == [(1, 1)]
    dead = app.ol.jobs(state="dead")
    told = " ".join(str(job.error) for job in dead)
    assert "only JSON is read" in told and "belongs to a chord" in told
    assert {job.task for job in dead} == {"celery.unreadable"}
    [(kept,)] = sql(database, "SELECT args FROM {job} WHERE key LIKE ?", f"%{member}")
    assert "shop.add" in str(kept)
    assert pickled not in str(kept)


@pytest.mark.parametrize(
    "args",
    [[{"__type__": "decimal", "__value__": "one"}], json.loads("[" * 700 + "]" * 700)],
    ids=["value", "nesting"],
)
async def test_a_message_of_any_content_stops_no_other(
    app: Celery, producer: celery.Celery, args: Any
) -> None:
    """Received in one batch with it, before or after it."""
    names = {"task": "shop.add", "id": str(uuid.uuid4())}
    good = [producer.send_task("shop.add", (1, 1)).id]
    with producer.connection_for_write() as connection:
        connection.SimpleQueue("celery").put([args, {}, {}], headers=names)
    good.append(producer.send_task("shop.add", (2, 2)).id)
    async with work(app.ol):
        await ends(app, *good)
        await aeventually(lambda: app.ol.counts()["dead"] == 1)
    assert sorted(app.ran) == [(1, 1), (2, 2)]


async def test_a_message_of_a_process_that_dies_before_its_commit_is_not_lost(
    app: Celery, producer: celery.Celery, broker: str
) -> None:
    """R001: it was taken from Celery's queue, and is in no database."""
    id = producer.send_task("shop.add", (1, 1)).id
    dying = CeleryQueue(broker)
    await dying.open()
    [message] = await dying.receive(10, 5)
    assert message.id == id
    await dying.close()
    async with work(app.ol):
        await ends(app, id)
    assert app.ran == [(1, 1)]


@pytest.mark.parametrize("broker", ["rabbit"], indirect=True)
async def test_a_move_in_rabbitmq_that_is_cut_off_moves_nothing(
    producer: celery.Celery, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R129: a message in Celery's queue and in ours, too, would run on both sides."""
    published = 0
    publish = aiormq.Channel.basic_publish

    async def cut_off(channel: aiormq.Channel, *args: Any, **kwargs: Any) -> Any:
        nonlocal published
        published += 1
        answer = await publish(channel, *args, **kwargs)
        if published == 3:
            await channel.basic_qos(prefetch_count=100)  # the broker has all that was sent before
            raise ConnectionError("cut off")
        return answer

    for n in range(5):
        producer.send_task("shop.add", (n, n))
    queue = CeleryQueue(broker)
    await queue.open()
    monkeypatch.setattr(aiormq.Channel, "basic_publish", cut_off)
    with pytest.raises(SinkDown, match="cut off"):
        await queue.receive(10, 5)
    await queue.close()
    await aeventually(lambda: ready(producer, "celery") == 5)
    assert ready(producer, "outlast.celery") == 0


@pytest.mark.parametrize("broker", ["rabbit"], indirect=True)
async def test_a_move_in_rabbitmq_survives_the_deletion_of_our_queue(
    producer: celery.Celery, broker: str
) -> None:
    """R123: the broker drops what has no queue, so it is declared again before the commit."""
    queue = CeleryQueue(broker)
    await queue.open()
    sent = {producer.send_task("shop.add", (n, n)).id for n in range(5)}
    source: Any = queue._source
    await aeventually(lambda: len(source._consumer.arrived) == 5)
    await asyncio.to_thread(empty, broker, "outlast.celery")
    found: set[str] = set()
    async with asyncio.timeout(30):
        while found != sent:
            try:
                found |= {one.id for one in await queue.receive(10, 1)}
            except SinkDown:  # its consumer ended with the queue: as a source does, open it anew
                await queue.close()
                await queue.open()
    await queue.close()


@pytest.mark.parametrize("broker", ["rabbit"], indirect=True)
async def test_workers_of_one_process_commit_their_moves_apart(
    producer: celery.Celery, broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R129: they share the channel, so the commit of one must not contain a half of the other's."""
    since_commit: Counter[str] = Counter()
    halves = []

    def counted(name: str) -> None:
        call = getattr(aiormq.Channel, name)

        async def count(channel: aiormq.Channel, *args: Any, **kwargs: Any) -> Any:
            if name == "tx_commit":
                halves.append(since_commit["basic_publish"] - since_commit["basic_ack"])
                since_commit.clear()
                return await call(channel, *args, **kwargs)
            answer = await call(channel, *args, **kwargs)
            since_commit[name] += 1
            await asyncio.sleep(0)  # another one's turn, as when the socket is full
            return answer

        monkeypatch.setattr(aiormq.Channel, name, count)

    for n in range(40):
        producer.send_task("shop.add", (n, n))
    queue = CeleryQueue(broker)
    await queue.open()
    counted("basic_publish"), counted("basic_ack"), counted("tx_commit")
    received = await asyncio.gather(*(queue.receive(7, 1) for _ in range(4)))
    await queue.close()
    assert sum(map(len, received)) > 0 and len(halves) > 1
    assert set(halves) == {0}


def ready(producer: celery.Celery, queue: str) -> int:
    """Messages that the broker would deliver."""
    with producer.connection_for_write() as connection:
        return int(connection.default_channel.queue_declare(queue, passive=True).message_count)


async def test_a_message_that_was_taken_comes_again_to_us_alone(
    app: Celery, producer: celery.Celery, broker: str
) -> None:
    """R129: a process that dies between its commit and the acknowledgement: no worker of Celery
    may find the message, and the next bridge knows it."""
    id = producer.send_task("shop.add", (1, 1)).id
    inbox = app.ol.declared_sources["celery:celery"]
    dying = CeleryQueue(broker)
    await dying.open()
    [message] = await dying.receive(10, 5)
    await app.ol._areceive_jobs([inbox.job(message, 10_000)[0]])
    await dying.close()  # never acknowledged
    with producer.connection_for_write() as connection:
        assert connection.default_channel.basic_get("celery") is None
    async with work(app.ol):
        await ends(app, id)
        await aeventually(lambda: lag(app) == 0)
    assert app.ran == [(1, 1)] and app.ol.counts()["succeeded"] == 1


def lag(app: Celery) -> int | None:
    """What the broker still has, as another process sees it."""

    async def ask() -> int | None:
        queue = CeleryQueue(app.conf.broker_url)
        await queue.open()
        try:
            return await queue.lag()
        finally:
            await queue.close()

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(ask())).result()


@pytest.mark.kinds("sqlite")
def test_who_stays_with_celery_gets_the_messages_back(
    redis: RedisServer, database: Database
) -> None:
    import redis as client

    queue = CeleryQueue(redis.url, queue="mail")

    async def take() -> None:
        await queue.open()
        assert len(await queue.receive(10, 1)) == 3
        await queue.close()

    with client.Redis.from_url(redis.url) as connection:
        for n in range(3):
            connection.lpush("mail" if n else "mail\x06\x163", envelope(n))
        before = [connection.lrange(name, 0, -1) for name in ("mail", "mail\x06\x163")]
        asyncio.run(take())
        assert connection.llen("mail") == 0
        assert asyncio.run(queue.give_back()) == 3
        assert [sorted(connection.lrange(n, 0, -1)) for n in ("mail", "mail\x06\x163")] == [
            sorted(one) for one in before
        ]
        assert connection.hlen("outlast-taken:mail") == 0
    with pytest.raises(Unsupported, match="shovel"):
        asyncio.run(CeleryQueue("amqp://127.0.0.1:1/").give_back())


def envelope(n: int) -> str:
    body = base64.b64encode(json.dumps([[n], {}, {}]).encode()).decode()
    return json.dumps(
        {
            "body": body,
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"task": "shop.add", "id": str(uuid.uuid4())},
            "properties": {"body_encoding": "base64"},
        }
    )


async def test_the_older_protocol(app: Celery, producer: celery.Celery) -> None:
    producer.conf.task_protocol = 1
    vars(producer.amqp).pop("create_task_message", None)
    id = producer.send_task("shop.add", (3,), {"y": 4}).id
    async with work(app.ol):
        [job] = await ends(app, id)
    assert job.result == 7
