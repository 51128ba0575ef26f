// pg-boss: PostgreSQL, polling, Node.js.

import pg from "pg";
import PgBoss from "pg-boss";

export const NAME = "pg-boss";
export const STORES = ["postgres"];
export const REQUIRES = ["pg-boss@10", "pg@8"];
export const CAN = ["async", "many", "within", "later", "slow", "wake"];
export const DURABLE = true;
export const DURABILITY = "Logged tables; finished jobs are kept for a while. No fence; a batch ends as a whole. Jobs of a dead worker run again when they expire, after 15 minutes.";
export const SETTINGS = "pollingIntervalSeconds 0.5, the least; batches of 500, after which a worker asks again at once (notifyWorker)";

const QUEUE = "bench";
const TOMORROW_S = 86_400;
const POLL_S = 0.5;
const CALM = { schedule: false, supervise: false };

export class Contender {
  constructor(place, seen) {
    this.place = place;
    this.seen = seen;
    this.pool = new pg.Pool({ connectionString: place.url, max: 2 });
  }

  async boss(settings = CALM) {
    if (!this.made) {
      this.made = new PgBoss({ connectionString: this.place.url, ...settings });
      this.made.on("error", console.error);
      await this.made.start();
    }
    return this.made;
  }

  async prepare() {
    const boss = await this.boss();
    await boss.createQueue(QUEUE);
    await this.pool.query("CREATE TABLE business (name text NOT NULL)");
  }

  async enqueue(payload) { await (await this.boss()).send(QUEUE, { payload }); }

  async enqueue_many(payloads) { await this.insert(payloads.map((payload) => ({ data: { payload } }))); }

  async enqueue_within(payload) {
    const boss = await this.boss();
    const client = await this.pool.connect();
    await client.query("BEGIN");
    await client.query("INSERT INTO business VALUES ('sold')");
    const db = { executeSql: (text, values) => client.query(text, values) };
    await boss.send(QUEUE, { payload }, { db });
    await client.query("COMMIT");
    client.release();
  }

  async enqueue_later(payloads) {
    const due = { startAfter: TOMORROW_S, priority: 9 };
    await this.insert(payloads.map((payload) => ({ data: { payload }, ...due })));
  }

  async enqueue_slow(payloads, seconds) { await this.insert(payloads.map(() => ({ data: { seconds } }))); }

  async insert(jobs) {
    await (await this.boss()).insert(jobs.map((job) => ({ name: QUEUE, ...job })));
  }

  async left() {
    const text = "SELECT count(*)::int AS n FROM pgboss.job WHERE name = $1 AND state < 'completed'";
    return (await this.pool.query(text, [QUEUE])).rows[0].n;
  }

  async work() {
    const boss = await this.boss({});
    const batchSize = this.place.concurrency > 10 ? 500 : this.place.concurrency;
    const options = { pollingIntervalSeconds: POLL_S, batchSize };
    const id = await boss.work(QUEUE, options, async (jobs) => {
      for (const { data } of jobs) this.seen(data.payload ?? "x");
      const longest = Math.max(...jobs.map(({ data }) => data.seconds ?? 0));
      if (longest) await new Promise((done) => setTimeout(done, longest * 1000));
      boss.notifyWorker(id);
    });
    await new Promise(() => {});
  }
}
