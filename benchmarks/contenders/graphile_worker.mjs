// graphile-worker: PostgreSQL, LISTEN/NOTIFY, Node.js.

import pg from "pg";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

export const NAME = "graphile-worker";
export const STORES = ["postgres"];
export const REQUIRES = ["graphile-worker@0.17", "pg@8"];
export const CAN = ["async", "many", "within", "later", "slow", "wake"];
export const DURABLE = true;
export const DURABILITY = "Logged tables. A finished job is deleted. Jobs of a dead worker run again after four hours.";
export const SETTINGS = "concurrentJobs = concurrency; from 11 on a local queue of 500 and completions in batches, without delay";

const TOMORROW_MS = 86_400_000;
const logger = new Logger(() => () => {});
const noop = (payload) => ({ identifier: "noop", payload: { payload } });

export class Contender {
  constructor(place, seen) {
    this.place = place;
    this.seen = seen;
    this.pool = new pg.Pool({ connectionString: place.url, max: 2 });
  }

  async utils() {
    this.made ??= await makeWorkerUtils({ pgPool: this.pool, logger });
    return this.made;
  }

  async prepare() {
    await (await this.utils()).migrate();
    await this.pool.query("CREATE TABLE business (name text NOT NULL)");
  }

  async enqueue(payload) { await (await this.utils()).addJob("noop", { payload }); }

  async enqueue_many(payloads) { await (await this.utils()).addJobs(payloads.map(noop)); }

  async enqueue_within(payload) {
    const client = await this.pool.connect();
    await client.query("BEGIN");
    await client.query("INSERT INTO business VALUES ('sold')");
    await client.query("SELECT graphile_worker.add_job('noop', $1::json)", [{ payload }]);
    await client.query("COMMIT");
    client.release();
  }

  async enqueue_later(payloads) {
    const due = { runAt: new Date(Date.now() + TOMORROW_MS), priority: -1 };
    await (await this.utils()).addJobs(payloads.map((payload) => ({ ...noop(payload), ...due })));
  }

  async enqueue_slow(payloads, seconds) {
    const job = { identifier: "slow", payload: { seconds } };
    await (await this.utils()).addJobs(payloads.map(() => job));
  }

  async left() {
    const { rows } = await this.pool.query("SELECT count(*)::int AS n FROM graphile_worker.jobs");
    return rows[0].n;
  }

  async work() {
    const jobs = this.place.concurrency;
    const hot = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
    const settings = { concurrentJobs: jobs, maxPoolSize: 10, ...(jobs > 10 ? hot : {}) };
    const runner = await run({
      logger,
      preset: { worker: { connectionString: this.place.url, ...settings } },
      noHandleSignals: true,
      taskList: {
        noop: async ({ payload }) => this.seen(payload),
        slow: async ({ seconds }) => {
          this.seen("x");
          await new Promise((done) => setTimeout(done, seconds * 1000));
        },
      },
    });
    await runner.promise;
  }
}
