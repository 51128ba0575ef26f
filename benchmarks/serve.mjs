// The inside of a contender's process for Node.js: `node serve.mjs CONTENDER.mjs`. The same requests and
// answers as serve.py, which describes them, and the same place in the environment.
//
//     export class Contender { constructor(place, seen) … prepare() … enqueue(payload) … }

import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { setTimeout as sleep } from "node:timers/promises";

const BULK = 1000; // jobs in one call of enqueue_many
const MARK = 100; // handlers between two marks
const STAMP = "@"; // begins a payload that says when it was enqueued
const PLACE = "OUTLAST_BENCH_PLACE";

// Seconds by the clock that all processes of this machine share, as Python's time.monotonic().
const now = () => Number(process.hrtime.bigint()) / 1e9;
const stamped = (size = 0) => `${STAMP}${now().toFixed(6).padStart(17, "0")}`.padEnd(size, "x");

async function until(moment) {
  while (now() < moment) await sleep((moment - now()) * 1000); // which may be a millisecond less
}

class Seen {
  count = 0;
  last = 0;
  marks = [];
  delays = [];

  add(payload) {
    const at = now();
    if (this.count % MARK === 0) this.marks.push(at);
    this.count += 1;
    this.last = at;
    if (payload.startsWith(STAMP)) this.delays.push(at - Number(payload.slice(1, 18)));
  }
}

class Serving {
  constructor(contender, seen) {
    this.contender = contender;
    this.seen = seen;
  }

  versions({ packages }) {
    const library = createRequire(import.meta.url);
    const found = packages.map((name) => [name, library(`./node_modules/${name}/package.json`).version]);
    return { node: process.version.slice(1), ...Object.fromEntries(found) };
  }

  prepare() { return this.contender.prepare(); }

  async left() {
    const at = now(); // what it says was true then, however long the answer takes
    return { left: await this.contender.left(), at };
  }

  async slow({ n, seconds }) { await this.contender.enqueue_slow(Array(n).fill("x"), seconds); }

  async later({ n }) {
    for (let first = 0; first < n; first += BULK) {
      await this.contender.enqueue_later(Array(Math.min(BULK, n - first)).fill("x"));
    }
  }

  async enqueue({ n, size, how = "enqueue", at = null }) {
    const payload = "x".repeat(size);
    if (at !== null) await until(at);
    const began = now();
    if (how === "enqueue_many") {
      for (let first = 0; first < n; first += BULK) {
        await this.contender.enqueue_many(Array(Math.min(BULK, n - first)).fill(payload));
      }
    } else {
      for (let i = 0; i < n; i += 1) await this.contender[how](payload);
    }
    return { began, ended: now() };
  }

  async drip({ n, every }) {
    for (let i = 0; i < n; i += 1) {
      await sleep(every * 1000);
      await this.contender.enqueue(stamped());
    }
  }

  async pour({ rate, seconds, size, every = 0.02 }) {
    const began = now();
    let sent = 0;
    for (let at = began; at < began + seconds; at = now()) {
      const due = Math.floor((at - began + every) * rate) - sent;
      if (due > 0) {
        await this.contender.enqueue_many(Array.from({ length: due }, () => stamped(size)));
        sent += due;
      }
      await until(at + every);
    }
    return sent;
  }

  work() {
    this.contender.work().catch((error) => {
      console.error(error);
      process.exit(1);
    });
  }

  count() { return this.seen.count; }

  answer({ do: verb, ...request }) {
    return verb === "seen" ? { ...this.seen } : this[verb](request);
  }
}

const say = (answer) => process.stdout.write(`${JSON.stringify(answer)}\n`);
console.log = console.info = console.debug = console.error; // standard output is for answers
const place = JSON.parse(process.env[PLACE]);
delete process.env[PLACE];
const { Contender } = await import(pathToFileURL(process.argv[2]).href);
const seen = new Seen();
const serving = new Serving(new Contender(place, (payload) => seen.add(payload)), seen);
for await (const line of createInterface({ input: process.stdin })) {
  try {
    say({ ok: (await serving.answer(JSON.parse(line))) ?? null });
  } catch (error) {
    say({ error: `${error.name}: ${error.message}` });
    throw error; // what went wrong is in the log, and the runner starts no more with this one
  }
}
process.exit(0); // the runner is gone
