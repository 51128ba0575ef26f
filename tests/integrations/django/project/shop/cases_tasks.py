"""Django's tasks on our backend; run by `manage.py test` on both databases."""

from datetime import timedelta
from functools import partial
from unittest import mock

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone

from outlast.integrations.django import OutlastTestCase, TaskBackend, ol
from outlast.integrations.django.task_api import TaskResultDoesNotExist, TaskResultStatus, signals
from outlast.integrations.django.task_backend import _known

from . import tasks
from .models import Order


class Backend(OutlastTestCase):
    def test_a_task_is_a_job_and_its_result_is_refreshed(self):
        result = tasks.count.enqueue(3, step=4)
        self.assertEqual(result.status, TaskResultStatus.READY)
        self.assertEqual((result.args, result.kwargs), ([3], {"step": 4}))
        job = ol.job(result.id)
        self.assertEqual(job.task, "shop.tasks.count")
        self.assertEqual(job.max_attempts, 1)
        self.drain()
        result.refresh()
        self.assertEqual(result.return_value, {"next": 7, "attempt": 1, "id": result.id})
        self.assertEqual(result.attempts, 1)
        self.assertGreaterEqual(result.finished_at, result.started_at)
        self.assertEqual(tasks.count.get_result(result.id), result)

    def test_async_tasks_run(self):
        result = tasks.acount.enqueue(1)
        self.drain()
        self.assertEqual(tasks.acount.get_result(result.id).return_value, 2)

    async def test_async_verbs(self):
        result = await tasks.acount.aenqueue(1)
        self.assertEqual((await tasks.acount.aget_result(result.id)).id, result.id)
        await result.arefresh()

    def test_priority_queue_and_start_are_the_job_s(self):
        later = timezone.now() + timedelta(hours=1)
        task = tasks.count.using(priority=-100, queue_name="slow", run_after=later)
        job = ol.job(task.enqueue(1).id)
        self.assertEqual((job.priority, job.queue, job.state), (-100, "slow", "scheduled"))
        self.assertLess(abs(job.run_at - later), timedelta(milliseconds=1))
        task.using(priority=100)

    def test_an_error_has_its_class_and_traceback(self):
        result = tasks.refuse.enqueue(5)
        self.drain()
        result.refresh()
        self.assertEqual(result.status, TaskResultStatus.FAILED)
        (error,) = result.errors
        self.assertIs(error.exception_class, LookupError)
        self.assertTrue(error.traceback.endswith("LookupError: no order 5\n"), error.traceback)

    def test_retries_are_an_option_of_the_backend(self):
        backend = TaskBackend(
            "default", {"OPTIONS": {"max_attempts": 2, "timeout": 9}, "QUEUES": []}
        )
        result = backend.enqueue(tasks.refuse, (5,), {})
        with self.signals() as told:
            self.drain()
            self.assertEqual(tasks.refuse.get_result(result.id).status, TaskResultStatus.READY)
            self.assertEqual(told, ["started"])
            self.drain(scheduled=True)
        self.assertEqual(told, ["started", "started", "finished"])
        ended = tasks.refuse.get_result(result.id)
        self.assertEqual((ended.attempts, len(ended.errors)), (2, 2))
        self.assertEqual(ol.job(result.id).timeout, 9)
        with self.assertRaisesMessage(ImproperlyConfigured, "max_atempts"):
            TaskBackend("default", {"OPTIONS": {"max_atempts": 2}})

    def test_signals_are_sent_and_a_bad_receiver_changes_nothing(self):
        with self.signals() as told:
            result = tasks.acount.enqueue(1)
            bad = mock.Mock(side_effect=ValueError)  # nor has it a name that Django could log
            signals.task_finished.connect(bad)
            self.addCleanup(signals.task_finished.disconnect, bad)
            with self.assertLogs("outlast.django", "ERROR"):
                self.drain()
        self.assertEqual(told, ["enqueued", "started", "finished"])
        bad.assert_called_once()
        self.assertEqual(ol.job(result.id).state, "succeeded")

    def test_the_job_of_a_block_that_is_rolled_back_never_existed(self):
        """R002"""
        with self.assertRaises(ValueError), transaction.atomic():
            Order.objects.create(number=1)
            result = tasks.count.enqueue(1)
            raise ValueError
        with self.assertRaises(TaskResultDoesNotExist):
            tasks.count.get_result(result.id)

    def test_a_name_in_a_row_is_never_imported(self):
        """Only what code has declared is run, or shown as a result."""
        result = tasks.acount.enqueue(1)
        with (
            mock.patch.dict(_known),
            self.assertRaisesMessage(TaskResultDoesNotExist, "is declared in no loaded module"),
        ):
            del _known["shop.tasks.acount"]
            tasks.acount.get_result(result.id)
        self.assertNotIn("shop.django_tasks_of_shop.elsewhere", ol.registry.names())
        self.assertIn("shop.tasks.count", ol.registry.names())

    def test_arguments_that_are_no_json_are_refused(self):
        with self.assertRaises(TypeError):
            tasks.count.enqueue(object())
        self.assertEqual(self.jobs(), [])

    def signals(self):
        return Told()


class Told:
    """The names of the signals that were sent, in order."""

    def __enter__(self):
        told = []
        self.receivers = {
            name: partial(self.tell, told, name) for name in ("enqueued", "started", "finished")
        }
        for name, receiver in self.receivers.items():
            getattr(signals, f"task_{name}").connect(receiver, weak=False)
        return told

    def tell(self, told, name, **_):
        told.append(name)

    def __exit__(self, *_):
        for name, receiver in self.receivers.items():
            getattr(signals, f"task_{name}").disconnect(receiver)
