"""The pages of the admin; run by `manage.py test` on both databases."""

from django.contrib.auth.models import Permission, User

from outlast.integrations.django import OutlastTestCase, ol

from . import tasks

JOBS, DEAD, SCHEDULES = (
    f"/admin/outlast/{name}/" for name in ("storedjob", "deadjob", "scheduleentry")
)


class Pages(OutlastTestCase):
    def setUp(self):
        super().setUp()
        User.objects.create_superuser("root", password="x")
        self.client.login(username="root", password="x")

    def sign_in_with(self, *permissions):
        user = User.objects.create_user("staff", password="x", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        self.client.login(username="staff", password="x")

    def dead(self):
        job = tasks.fail.enqueue(order=1)
        self.drain(scheduled=True)
        return job.id

    def test_jobs_are_listed_filtered_and_shown(self):
        job = tasks.pay.using(queue="<b>").enqueue(order=1)
        tasks.ship.enqueue(5)
        self.assertContains(self.client.get(JOBS), "ship")
        page = self.client.get(JOBS, {"task": "pay"})
        self.assertContains(page, job.id)
        self.assertContains(page, "&lt;b&gt;")
        self.assertNotContains(page, "ship")
        self.assertContains(self.client.get(JOBS, {"state": "lost"}), "must be one of")
        self.assertContains(self.client.get(f"{JOBS}{job.id}/"), "&quot;order&quot;: 1")
        unknown = f"{JOBS}01900000-0000-7000-8000-000000000000/"
        self.assertEqual(self.client.get(unknown).status_code, 404)

    def test_a_dead_job_is_retried_and_cancelled_on_record(self):
        id = self.dead()
        self.assertContains(self.client.get(DEAD), "order 1 cannot be paid")
        self.assertContains(self.client.get(f"{JOBS}{id}/"), "Traceback")
        page = self.client.post(DEAD, {"action": "retry", "selected": [id]}, follow=True)
        self.assertContains(page, "Retried: 1")
        self.assertEqual(ol.job(id).state, "ready")
        self.assertContains(self.client.get("/admin/"), "Outlast")
        page = self.client.post(f"{JOBS}{id}/", {"action": "cancel"}, follow=True)
        self.assertEqual(ol.job(id).state, "cancelled")
        page = self.client.post(f"{JOBS}{id}/", {"action": "cancel"}, follow=True)
        self.assertEqual(self.client.post(JOBS, {"action": "erase"}).status_code, 404)

    def test_schedules_are_paused_resumed_and_run(self):
        ol.create_schedule("nightly", tasks.pay.job(order=1), cron="0 3 * * *")
        self.assertContains(self.client.get(SCHEDULES), "0 3 * * *")
        for action, paused in (("pause", True), ("resume", False), ("run", False)):
            self.client.post(SCHEDULES, {"action": action, "selected": ["nightly"]})
            self.assertEqual(ol.schedules()[0].paused, paused)
        self.assertEqual(len(self.jobs("pay")), 1)
        page = self.client.post(SCHEDULES, {"action": "run", "selected": ["none"]}, follow=True)
        self.assertContains(page, "none")

    def test_who_may_view_cannot_change(self):
        id = self.dead()
        self.sign_in_with("view_storedjob", "view_deadjob")
        self.assertNotContains(self.client.get(DEAD), "Retry selected")
        self.assertEqual(
            self.client.post(DEAD, {"action": "retry", "selected": [id]}).status_code, 403
        )
        self.assertEqual(self.client.post(f"{JOBS}{id}/", {"action": "retry"}).status_code, 403)
        self.assertEqual(self.client.get(SCHEDULES).status_code, 403)
        self.assertEqual(ol.job(id).state, "dead")

    def test_who_may_nothing_sees_nothing(self):
        id = self.dead()
        self.sign_in_with()
        for url in (JOBS, DEAD, SCHEDULES, f"{JOBS}{id}/"):
            self.assertEqual(self.client.get(url).status_code, 403)
        self.client.logout()
        self.assertEqual(self.client.get(JOBS).status_code, 302)
