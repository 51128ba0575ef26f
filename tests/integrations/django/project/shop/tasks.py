"""Tasks of the shop: found by autodiscovery."""

import time
from pathlib import Path

import django
from django.db import connection, transaction

from outlast import Context, Retry
from outlast.integrations.django import ol, task

from .models import Order

if django.VERSION < (6, 0):
    import django_tasks as django_tasks_api
else:
    import django.tasks as django_tasks_api


@task
def pay(order: int) -> bool:
    Order.objects.filter(number=order).update(paid=True)
    return Order.objects.get(number=order).paid


@ol.task
async def pay_later(order: int) -> int:
    found = await Order.objects.aget(number=order)
    found.paid = True
    await found.asave()
    return found.number


@task(retry=Retry(max_attempts=2, base=60))
def fail(order: int) -> None:
    raise ValueError(f"order {order} cannot be paid")


@task(max_attempts=1)
def order_twice(number: int) -> None:
    Order.objects.create(pk=number, number=number)
    Order.objects.bulk_create([Order(pk=number, number=number)])


@task(max_attempts=1)
def send_bad_sql() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing FROM nowhere")


@task
def note(order: int, ctx: Context) -> None:
    ctx.log("seen", order=order)
    ctx.progress(1, 2)
    ctx.enqueue(pay.job(order=order))


@task(batch=10)
def ship(orders: list[int]) -> list[int]:
    return [order + 1 for order in orders]


@task
def session() -> int:
    """The server's process of this thread's connection (PostgreSQL)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


@task(isolated=True)
def pay_apart(order: int) -> bool:
    return pay(order)


@task
def order_in_a_failing_transaction(number: int) -> None:
    with transaction.atomic():
        pay.enqueue(order=number)
        raise ValueError("rolled back")


@task
def mark(folder: str, number: int, seconds: float) -> None:
    """One line for each start and one for each end."""
    with Path(folder, "started").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(seconds)
    Order.objects.create(number=number)


@task(retry=Retry(max_attempts=50, base=0.1, cap=1.0))
def place(number: int) -> None:
    Order.objects.get_or_create(number=number)
    time.sleep(0.02)
    Order.objects.filter(number=number).update(paid=True)


# Django's own tasks


@django_tasks_api.task(takes_context=True)
def count(context, start, step=1):
    Order.objects.create(number=start)
    return {"next": start + step, "attempt": context.attempt, "id": context.task_result.id}


@django_tasks_api.task
async def acount(start):
    return start + 1


@django_tasks_api.task
def refuse(order):
    raise LookupError(f"no order {order}")
