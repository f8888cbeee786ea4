// pg-boss with the verbs of verbs.py. It polls: every half second, its shortest interval, and at once while there is more.
// Jobs are JavaScript functions that get a batch.
"use strict";
const PgBoss = require("pg-boss");
const { main, now, record, recordFirst } = require("./node_verbs.cjs");

const connectionString = process.env.BENCH_DSN;
const POLL = { pollingIntervalSeconds: 0.5 };
const PULLERS = { latency: 1, drain: 2 };
const BATCH = { latency: 100, drain: 2000 };
const handlers = {
  first_line: (jobs, at) => jobs.forEach(({ data }) => record(data.sent, at)),
  nothing: () => recordFirst(),
  due: (jobs, at) => jobs.forEach(() => record(1, at)),
};

async function open(most, more = {}) {
  const boss = new PgBoss({ connectionString, max: most, schedule: false, ...more });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  return boss;
}

async function prepare() {
  const boss = await open(2, { supervise: false });
  for (const name of Object.keys(handlers)) await boss.createQueue(name);
  await boss.stop({ graceful: false });
  process.exit(0);
}

async function work(mode) {
  const boss = await open(10);
  for (const [name, handle] of Object.entries(handlers)) {
    for (let n = 0; n < PULLERS[mode]; n++) {
      const id = await boss.work(name, { ...POLL, batchSize: BATCH[mode] }, async (jobs) => {
        handle(jobs, now());
        boss.notifyWorker(id); // there may be more: fetch again at once
      });
    }
  }
  process.on("SIGTERM", () => boss.stop({ graceful: false }).finally(() => process.exit(0)));
}

async function connect(connections) {
  const boss = await open(connections, { supervise: false, migrate: false });
  const many = (length, job) => boss.insert(Array.from({ length }, () => job));
  return {
    one: (sent) => boss.send("first_line", { sent }),
    many: (count) => many(count, { name: "nothing" }),
    later: (count, startAfter) => many(count, { name: "due", startAfter }),
    release: () => boss.stop({ graceful: false }).finally(() => process.exit(0)),
  };
}

main({ prepare, work, connect });
