"""`OutlastTestCase`: jobs are stored in the test's own transaction, and run by `self.drain()`.

class SignUp(OutlastTestCase):
    def test_a_new_user_gets_a_mail(self):
        self.client.post("/sign-up", {"email": "a@example.org"})
        self.assertEqual(self.jobs("welcome")[0].state, "ready")
        self.drain()
        self.assertEqual(len(mail.outbox), 1)
"""

from __future__ import annotations

from django.test import TestCase

from ...model.job import Job
from .client import DjangoOutlast, default_app
from .drain import InlineDrain
from .store import DjangoStore


class OutlastTestCase(TestCase):  # type: ignore[misc]
    """A `TestCase` in which Outlast uses the test's connection, regardless of `ambient`: jobs are
    rolled back with the test's transaction, and no other connection is opened."""

    ol: DjangoOutlast

    def setUp(self) -> None:
        super().setUp()
        self.ol = ol = default_app()
        if not isinstance(ol.store, DjangoStore):
            before = ol.store.address
            conf = ol.conf
            ol._parts.exchange(DjangoStore(conf.alias, conf.schema, conf.store_settings))
            self.addCleanup(ol.move, before.url, before.schema)
        ol._parts.undeclared = bool(ol.declared_queues)  # rolled back with the last test

    def jobs(self, task: str | None = None, state: str | None = None) -> list[Job]:
        """The jobs of this test, newest first."""
        return self.ol.jobs(task=task, state=state)

    def drain(self, *, scheduled: bool = False, limit: int = 1000) -> list[Job]:
        """Run the ready jobs and the jobs that they enqueue, one after the other in this thread and
        transaction; returns the ended jobs. With `scheduled`, jobs with a later start (a delay, a
        retry) run at once. A test whose jobs never end fails at `limit`."""
        return InlineDrain(self.ol).run(scheduled=scheduled, limit=limit)
