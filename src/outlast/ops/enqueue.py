"""Enqueue: insert all jobs of a call, or none.

A job whose key is taken is not inserted: the caller gets the existing job. A job whose id exists
was sent before, and the response was lost: the caller gets that job, too. Flows with keys are
inserted as a whole: see `flow_keys`. For keys that are unique only for a time, see `unique_keys`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..model.blob import same_text
from ..model.errors import Contention, KeyConflict
from ..model.flow_builder import merge_duplicates
from ..model.flow_key import existing_units
from ..model.job import JOB_COLUMNS, Job, NewFlow, NewJob, read_args, read_job
from ..model.lifecycle import STATES, State
from ..model.timestamps import to_datetime
from .flow_keys import ExistingFlows, take_keys
from .flow_links import delete_empty_flows, insert_flows, join_followers, link
from .operation import BEGIN, BEGIN_PART, CommitPipeline, Op, Row, Rows, Statement, creates_database
from .unique_keys import take_unique

JOBS_PER_STATEMENT = 5000
CANCEL_SIGNAL = "!cancel"  # not a queue: notifies owners of a requested cancel


@creates_database
def enqueue(jobs: Sequence[NewJob], held: Collection[str] = (), ours: bool = True) -> Op[list[Job]]:
    """Insert jobs; returns one `Job` for each, in the order given (but none for jobs of an existing
    flow that have been pruned since). `held` are flows that the caller knows to be open; a
    transaction that is not `ours` may stay open for long."""
    if not jobs:
        return []
    if len(jobs) == 1 and jobs[0].is_plain and jobs[0].key is None:
        rows = yield Statement("insert_job", jobs[0].params())
        return [(yield from _inserted_or_existing(jobs[0], rows))]
    tied = any(job.after or job.flow or job.sibling_of for job in jobs)
    keyed = any(job.key is not None for job in jobs)
    if tied or keyed:
        yield BEGIN  # a conflict must undo the other inserts
    flows = [flow for job in jobs for flow in job.new_flows] if tied else []
    known = yield from take_keys(jobs, flows)
    unique = [job for job in jobs if job.unique_mode is not None] if keyed else []
    found = (yield from take_unique(unique)) if unique else None
    new = found.without(jobs) if found else jobs
    answers = yield from _insert_all(new, flows, known, held, tied=tied, ours=ours)
    if found is None:
        return list(answers.values())
    given = (found.answer(job.id, answers) for job in jobs)
    return [job for job in given if job is not None]


@creates_database
def enqueue_one(job: NewJob, channel: str | None = None) -> Op[Job]:
    """Insert a plain job and commit, in one round trip. With a `channel`, the statement also
    notifies workers, if the job is new and ready."""
    if channel is None:
        insert = Statement("insert_job", job.params())
    else:
        insert = Statement("insert_job_and_notify", {**job.params(), "channel": channel})
    (rows,) = yield CommitPipeline((insert,))
    return (yield from _inserted_or_existing(job, rows))


def _inserted_or_existing(job: NewJob, rows: Rows) -> Op[Job]:
    """The inserted job or, if it was not inserted, the existing one."""
    if rows:
        created_at, lane = rows[0][:2]
        return _inserted_job(job, (job.id, State.READY, created_at, created_at, None, lane))
    yield BEGIN
    existing, texts = yield from _existing_jobs([job])
    answer = _answer(job, job, {}, existing)
    _refuse_conflicts([job], [answer], texts)
    return answer


def _insert_all(
    jobs: Sequence[NewJob], flows: Sequence[NewFlow], known: ExistingFlows, held: Collection[str],
    *, tied: bool, ours: bool,
) -> Op[dict[str, Job]]:  # fmt: skip
    """Insert jobs, except those of existing flows; returns the job that represents each."""
    if not jobs:
        return {}
    answers = yield from _insert(known.new_jobs(jobs), flows, known, held, tied=tied, ours=ours)
    if not known.replacements:
        return answers
    yield from _join_existing_flows(jobs, known, answers)
    given = ((job.id, known.answer(job.id, answers)) for job in jobs)
    return {id: job for id, job in given if job is not None}


def _insert(
    jobs: Sequence[NewJob], flows: Sequence[NewFlow], known: ExistingFlows, held: Collection[str],
    *, tied: bool, ours: bool,
) -> Op[dict[str, Job]]:  # fmt: skip
    """Insert jobs and their new flows; returns the job that represents each."""
    held = {*held, *(flow.id for flow in flows)}  # this call's own flows
    closed = (yield from insert_flows(jobs, known.new_flows(flows), held)) if tied else {}
    unique, twins = _deduplicated(jobs)
    if tied and twins:
        unique = merge_duplicates(unique, {id: twin.id for id, twin in twins.items()})
    made = yield from _insert_rows(unique)
    refused = [job for job in unique if job.id not in made]
    existing, texts = (yield from _existing_jobs(refused)) if refused else ({}, {})
    if refused or twins:
        known_as = [_answer(job, twins.get(job.id, job), made, existing) for job in jobs]
        _refuse_conflicts(jobs, known_as, texts)
    if tied and (refused or twins):
        yield from delete_empty_flows(flows, existing_units(jobs, _replaced_jobs(existing, twins)))
    if tied:
        fresh = [job for job in unique if job.id in made]
        if refusal := next((closed[job.flow] for job in fresh if job.flow in closed), None):
            raise refusal
        replacements = {id: job.id for id, job in existing.items() if id != job.id}
        counted = yield from link(fresh, replacements | known.replacements, ours)
        if any(job.sibling_of for job in jobs):
            yield from _join_siblings(jobs, twins, made, replacements)
        made |= {id: (id, state, *made[id][2:]) for id, state in counted.items()}
    return {job.id: _answer(job, twins.get(job.id, job), made, existing) for job in jobs}


def _insert_rows(jobs: Sequence[NewJob]) -> Op[dict[str, Row]]:
    """Insert jobs, all or none; returns the rows of the new ones."""
    made: dict[str, Row] = {}
    for part in parts_of(jobs):
        if len(part) < len(jobs):
            yield BEGIN_PART
        rows: Rows = yield Statement("insert_jobs", rows=[job.row() for job in part])
        made |= {row[0]: row for row in rows}
    return made


def parts_of(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    """Split jobs into one part per statement: the timeout holds for a statement, however many jobs
    there are."""
    for start in range(0, len(jobs), JOBS_PER_STATEMENT):
        yield jobs[start : start + JOBS_PER_STATEMENT]


@creates_database
def insert_messages(jobs: Sequence[NewJob]) -> Op[set[str]]:
    """Insert jobs of messages, under the keys of the messages; returns the ids of the new ones. A
    known message is left alone, whatever the headers of a redelivery contain."""
    messages, _ = _deduplicated(jobs)
    made: Rows = yield Statement("insert_jobs", rows=[one.row() for one in messages])
    return {id for id, *_ in made}


def notify_queues(channel: str, queues: Iterable[str]) -> Op[None]:
    """Notify idle workers of the queues with new jobs."""
    yield Statement(
        "notify_workers", {"channel": channel, "queues": json.dumps(sorted(set(queues)))}
    )


def _deduplicated(jobs: Sequence[NewJob]) -> tuple[list[NewJob], dict[str, NewJob]]:
    """Merge jobs of one call that share a key. Keyed jobs are sorted by key: two overlapping calls
    then wait for each other in one direction only."""
    first: dict[tuple[str, str, str], NewJob] = {}
    twins: dict[str, NewJob] = {}
    if all(job.key is None for job in jobs):
        return list(jobs), twins
    for job in jobs:
        if job.key is not None and job.unique_mode is None:
            twin = first.setdefault((job.tenant, job.queue, job.key), job)
            if twin is not job:
                twins[job.id] = twin
    keyed = [job for _, job in sorted(first.items())]
    free = [job for job in jobs if job.key is None or job.unique_mode is not None]
    return free + keyed, twins


def _existing_jobs(refused: list[NewJob]) -> Op[tuple[dict[str, Job], dict[str, str]]]:
    """The existing jobs that hold the keys or ids of refused ones, and the texts of their
    arguments."""
    wanted = [
        {
            "id": j.id,
            "tenant": j.tenant,
            "queue": j.queue,
            "key": j.key if not j.unique_mode else None,
        }
        for j in refused
    ]
    rows: Rows = yield Statement("existing_jobs", rows=wanted)
    texts = {row[0]: row[1 + JOB_COLUMNS.index("args")] for row in rows}
    return {row[0]: read_job(row[1:]) for row in rows}, texts


def _join_siblings(
    jobs: Sequence[NewJob],
    twins: dict[str, NewJob],
    made: dict[str, Row],
    replacements: dict[str, str],
) -> Op[None]:
    """Link jobs that dependents wait for besides others: the new ones, or the existing ones that
    hold their keys. A job that was sent before is linked already."""
    sent = [(twins.get(job.id, job), job.sibling_of) for job in jobs if job.sibling_of]
    there = [(job, beside) for job, beside in sent if job.id in made or job.id in replacements]
    joins = dict.fromkeys((replacements.get(job.id, job.id), beside) for job, beside in there)
    existing = {replacements[job.id]: job for job, _ in there if job.id in replacements}
    if joins:
        yield from join_followers(list(joins), existing)


def _replaced_jobs(
    existing: Mapping[str, Job], twins: Mapping[str, NewJob]
) -> dict[str, Job | NewJob]:
    """The jobs that are not inserted under their own ids, mapped to the jobs that represent
    them."""
    others: dict[str, Job | NewJob] = {id: job for id, job in existing.items() if id != job.id}
    return others | {id: others.get(twin.id, twin) for id, twin in twins.items()}


def _join_existing_flows(
    jobs: Sequence[NewJob], known: ExistingFlows, answers: Mapping[str, Job]
) -> Op[None]:
    """The same for jobs of a flow whose key existed. A job that has been pruned since has ended."""
    there = [job for job in jobs if job.sibling_of and known.answer(job.id, answers) is not None]
    joins = {
        (known.replacements[job.id], job.sibling_of): job
        for job in there
        if job.id in known.replacements
    }
    if joins:
        existing = {id: job for (id, _), job in joins.items()}
        yield from join_followers([(id, str(beside)) for id, beside in joins], existing)


def _answer(asked: NewJob, sent: NewJob, made: dict[str, Row], existing: dict[str, Job]) -> Job:
    if sent.id in made:
        job = _inserted_job(sent, made[sent.id])
    elif sent.id in existing:
        job = existing[sent.id]
    else:
        # Refused for a key whose holder has been pruned since: a retry succeeds.
        raise Contention(reason=f"the job that held the key {asked.key!r} has just been pruned")
    return job


def _refuse_conflicts(
    jobs: Sequence[NewJob], answers: Sequence[Job], texts: Mapping[str, str]
) -> None:
    """Refuse different calls under one key. (Keys that are unique for a time were compared before;
    when such a call is repeated, the job may have other arguments.)"""
    for asked, job in zip(jobs, answers, strict=True):
        if asked.unique_mode is not None:
            continue
        if job.task != asked.task or not _same(job.args, asked.args, texts.get(asked.id)):
            raise KeyConflict(key=asked.key, queue=asked.queue, job=job.id)


def _same(args: object, requested: str, existing: str | None) -> bool:
    """Whether a job has the requested arguments. One process may store by reference what another
    one stores in the row."""
    if args == read_args(requested):
        return True
    return existing is not None and same_text(requested, existing)


def _inserted_job(new: NewJob, row: Row) -> Job:
    _, state, run_at, created_at, expires_at, lane = row
    return Job(
        id=new.id, task=new.task, queue=new.queue, state=STATES[state], attempt=0,
        args=read_args(new.args), result=None, error=None, run_at=to_datetime(run_at),
        created_at=to_datetime(created_at), started_at=None, finished_at=None, worker=None,
        tenant=new.tenant, priority=new.priority, key=new.key, max_attempts=new.max_attempts,
        max_crashes=new.max_crashes, expires_at=to_datetime(expires_at), timeout=new.timeout,
        trace=new.trace, flow=new.flow, waits_for=new.waits_for if state == State.WAITING else 0,
        lane=lane,
    )  # fmt: skip
