"""Jobs in Django's transactions and tests; run by `manage.py test` on both databases."""

import re

from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connection, transaction
from django.test import TestCase, TransactionTestCase
from django.test.utils import CaptureQueriesContext

from outlast import SchemaMismatch, UnknownTask
from outlast.integrations.django import OutlastTestCase, ol
from outlast.integrations.django.store import DjangoStore

from . import tasks
from .models import Order

SESSIONS = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'"""


class Draining(OutlastTestCase):
    def test_a_job_runs_in_the_transaction_of_the_test(self):
        Order.objects.create(number=7)
        job = tasks.pay.enqueue(order=7)
        self.assertEqual([one.state for one in self.jobs("pay")], ["ready"])
        ran = self.drain()
        self.assertEqual([one.id for one in ran], [job.id])
        self.assertEqual((ran[0].state, ran[0].result), ("succeeded", True))
        self.assertTrue(Order.objects.get().paid)

    def test_an_async_handler_sees_the_test_s_rows(self):
        Order.objects.create(number=8)
        tasks.pay_later.enqueue(order=8)
        self.assertEqual([one.result for one in self.drain()], [8])

    def test_no_job_is_left_of_another_test(self):
        self.assertEqual(self.jobs(), [])

    def test_a_failure_waits_for_its_retry_and_is_dead_in_the_end(self):
        job = tasks.fail.enqueue(order=9)
        self.drain()
        self.assertEqual(ol.job(job.id).state, "scheduled")
        self.drain(scheduled=True)
        dead = ol.job(job.id)
        self.assertEqual((dead.state, dead.attempt), ("dead", 2))
        self.assertEqual(dead.error["message"], "order 9 cannot be paid")

    def test_an_error_of_the_database_is_the_job_s_and_not_the_test_s(self):
        Order.objects.create(number=1)
        jobs = [tasks.order_twice.enqueue(number=7), tasks.send_bad_sql.enqueue()]
        self.drain()
        types = [ol.job(job.id).error["type"] for job in jobs]
        self.assertEqual(types[0], "django.db.utils.IntegrityError")
        self.assertIn(types[1].rpartition(".")[2], ("OperationalError", "ProgrammingError"))
        # Whether the handler's first order is undone depends on what the error broke.
        self.assertIn(1, [one.number for one in Order.objects.all()])

    def test_a_handler_s_jobs_events_and_batches_are_real(self):
        Order.objects.create(number=3)
        job = tasks.note.enqueue(order=3)
        batch = tasks.ship.enqueue(4)
        states = {one.task: one.state for one in self.drain()}
        self.assertEqual(states, dict.fromkeys(("note", "pay", "ship"), "succeeded"))
        self.assertEqual(ol.result(batch), 5)
        kinds = [event.kind for event in ol.history(job.id)[1]]
        self.assertEqual(kinds.count("log"), 1)
        self.assertEqual(kinds.count("progress"), 1)

    def test_a_delayed_job_waits_unless_asked(self):
        Order.objects.create(number=5)
        tasks.pay.using(delay=3600).enqueue(order=5)
        self.assertEqual(self.drain(), [])
        self.assertEqual(len(self.drain(scheduled=True)), 1)

    def test_a_limited_queue_is_drained(self):
        ol.queue("narrow", running=1, lane_running=1)
        Order.objects.create(number=6)
        for _ in range(3):
            tasks.pay.using(queue="narrow", lane="a").enqueue(order=6)
        self.assertEqual(len(self.drain()), 3)
        self.assertEqual([one.lane for one in self.jobs()], ["a"] * 3)
        self.assertEqual([one.limits.name for one in ol.limits()], ["narrow"])

    def test_an_unknown_task_is_an_error(self):
        tasks.pay.enqueue(order=1)
        ol.registry._by_name.pop("pay")
        self.addCleanup(ol.registry.add, tasks.pay._definition)
        with self.assertRaises(UnknownTask):
            self.drain()

    def test_jobs_without_end_fail_the_test(self):
        for number in range(3):
            tasks.ship.enqueue(number)
        with self.assertRaisesMessage(AssertionError, "still ready after 2 attempts"):
            self.drain(limit=2)

    def test_no_connection_is_opened_beside_django_s(self):
        self.assertIsInstance(ol.store, DjangoStore)
        self.drain()
        with CaptureQueriesContext(connection) as sent:
            tasks.pay.enqueue(order=1)
        # How many statements notify workers depends on the time since the last one.
        inserted = [one for one in sent if re.match(r"\s*INSERT INTO \S*job\b", one["sql"])]
        self.assertEqual(len(inserted), 1)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute(SESSIONS)
                self.assertEqual(cursor.fetchone(), (1,))


class Atomic(TransactionTestCase):
    def test_a_job_exists_if_and_only_if_the_block_commits(self):
        """R002"""
        with self.assertRaises(ValueError), transaction.atomic():
            tasks.pay.enqueue(order=1)
            raise ValueError
        self.assertEqual(ol.jobs(), [])
        with transaction.atomic():
            Order.objects.create(number=2)
            tasks.pay.enqueue(order=2)
        self.assertEqual([job.args for job in ol.jobs()], [{"order": 2}])

    async def test_conn_and_async_verbs_use_the_same_connection(self):
        one = await sync_to_async(tasks.pay.using(conn=connection).enqueue)(order=3)
        two = await tasks.pay.aenqueue(order=4)
        self.assertEqual({job.id for job in await ol.ajobs()}, {one.id, two.id})
        await ol.acancel(one.id)
        self.assertEqual((await ol.acounts())["cancelled"], 1)

    async def test_many_jobs_at_once_need_no_block(self):
        """R008"""
        jobs = await sync_to_async(lambda: ol.enqueue(*map(tasks.ship.job, range(30))))()
        more = await ol.aenqueue(*map(tasks.ship.job, range(30)))
        self.assertEqual(
            {job.id for job in await ol.ajobs(limit=100)}, {one.id for one in jobs + more}
        )

    def test_a_cancel_is_part_of_the_block_too(self):
        job = tasks.pay.enqueue(order=5)
        with self.assertRaises(ValueError), transaction.atomic():
            ol.cancel(job.id)
            raise ValueError
        self.assertEqual(ol.job(job.id).state, "ready")
        with transaction.atomic():
            ol.cancel(job.id)
        self.assertEqual(ol.counts()["cancelled"], 1)

    def tearDown(self):
        ol.purge(state="cancelled")
        for job in ol.jobs():
            ol.cancel(job.id)
        ol.purge(state="cancelled")


class Tables(TestCase):
    def test_migrating_again_changes_nothing(self):
        self.assertEqual(ol.migrate(), [])

    def test_no_change_of_a_model_lacks_a_migration(self):
        call_command("makemigrations", "--check", "--dry-run", verbosity=0)


class Missing(TestCase):
    def test_missing_tables_name_the_command_that_creates_them(self):
        store = DjangoStore("default", "elsewhere", ol.store.settings)
        with self.assertRaisesMessage(SchemaMismatch, "run `python manage.py migrate`"):
            store.ready()
