// A remote worker in plain JavaScript, by long polls instead of a stream:
// node polling_worker.mjs URL TOKEN_FILE [HOW_MANY_AT_ONCE]
// The protocol is described in docs/reference/remote-protocol.md.
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

class Permanent extends Error {}

const tasks = {
  add: ({ a, b }) => a + b,
  nap: ({ seconds }, { job, signal }) => sleep(seconds * 1000, job.attempt, { signal }),
  count: ({ to }, { progress }) => { for (let n = 1; n <= to; n++) progress(n, to) },
  fail: ({ message }) => { throw new Error(message) },
  refuse: ({ message }) => { throw new Permanent(message) },
}

const [server, tokenFile, credit = '4'] = process.argv.slice(2)
const headers = { authorization: `Bearer ${readFileSync(tokenFile, 'utf8').trim()}`, 'content-type': 'application/json' }
const worker = `node-${process.pid}-${Date.now().toString(36)}`
const leaving = new AbortController()
const held = new Map() // jobs in flight, by task token
let lease = 15 // seconds; set by the server

// A request, retried until the server responds; a refusal ends the program.
async function call(method, path, body, signal) {
  for (let wait = 100; ; wait = Math.min(2 * wait, 5000)) {
    const answer = await fetch(server + path, { method, headers, body, signal }).catch(() => null)
    const said = answer?.ok && await answer.text().catch(() => null)
    if (said) return said // complete, not truncated
    if (answer && !answer.ok && answer.status < 500 && answer.status !== 429) {
      console.error(`refused: ${answer.status} ${await answer.text()}`)
      process.exit(1)
    }
    await sleep(wait * (0.5 + Math.random() / 2), null, { signal })
  }
}

async function report(reports) {
  return JSON.parse(await call('POST', '/api/v1/tasks/reports', JSON.stringify({ reports }))).reports
}

// Renew jobs; the first renewal accepts them. Lost or cancelled jobs stop.
async function renew(tokens) {
  const asked = Date.now()
  const answers = tokens.length ? await report(tokens.map((token) => ({ do: 'renew', token }))) : []
  answers.forEach(({ status, cancel, locked }, i) => {
    const one = held.get(tokens[i])
    if (status === 'ok' && one) one.until = asked + 900 * lease // a tenth is the safety margin
    if (locked && one?.until > Date.now()) // locked, so nobody can reclaim it: renew again soon
      one.until = Math.max(one.until, asked + 450 * lease), keep.at = Date.now() + 50 * lease
    if (status === 'lost' || cancel) one?.stop.abort(status)
    if (status === 'lost') held.delete(tokens[i])
    if (status === 'ok' && one) one.runs ??= run(one.job)
  })
}

async function run(job) {
  const { token } = job, { stop } = held.get(token), said = []
  const progress = (done, total) => said.push({ do: 'event', token, n: said.length, kind: 'progress', data: JSON.stringify({ done, total }) })
  let outcome
  try {
    const result = await tasks[job.task](JSON.parse(job.args), { job, progress, signal: stop.signal })
    outcome = { do: 'complete', result: JSON.stringify(result ?? null) }
  } catch (error) {
    const how = stop.signal.aborted ? 'cancelled' : error instanceof Permanent ? 'permanent' : 'failed'
    const told = { type: error.constructor.name, message: error.message, traceback: error.stack }
    outcome = stop.signal.reason === 'leaving' ? { do: 'release' } : { do: 'fail', how, error: told }
  }
  if (held.has(token)) await report([...said, { token, ...outcome }]) // else the claim is lost
  held.delete(token)
}

async function poll() {
  const wish = new URLSearchParams({ worker, credit, tasks: Object.keys(tasks), wait: 20 })
  const answer = JSON.parse(await call('POST', `/api/v1/dequeue?${wish}`, undefined, leaving.signal))
  if (lease !== answer.lease) lease = answer.lease, keep.at = 0
  for (const job of answer.jobs) held.set(job.token, { job, stop: new AbortController(), until: 0 })
  await renew(answer.renew ? [...held.keys()] : answer.jobs.map(({ token }) => token))
}

async function keep() { // three renewals per lease; jobs not renewed in time stop here
  for (const [token, one] of held) if (one.until && Date.now() > one.until) held.delete(token) && one.stop.abort('lost')
  if (Date.now() > (keep.at ?? 0)) renew([...held.keys()], keep.at = Date.now() + 300 * lease)
}
setInterval(keep, 50)
process.on('SIGTERM', () => leaving.abort())
while (!leaving.signal.aborted) await poll().catch(() => sleep(500 * Math.random()))
for (const one of held.values()) one.stop.abort('leaving')
while (held.size) await sleep(20)
await call('DELETE', `/api/v1/dequeue?worker=${worker}`).then(() => process.exit(0))
