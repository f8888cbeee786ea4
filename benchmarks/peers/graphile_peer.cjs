// graphile-worker with the verbs of verbs.py. Drain: a local queue of 2,000 and batched completion, as its page on
// performance recommends; latency: its defaults, with 10 jobs at a time. Functions are JavaScript.
"use strict";
const fs = require("node:fs");
const { run, makeWorkerUtils, runMigrations } = require("graphile-worker");
const { Logger } = require("@graphile/logger");

const connectionString = process.env.BENCH_DSN;
const WARM_UP = -1;
const logger = new Logger(() => () => undefined);

// Date.now() has whole milliseconds. The offset is taken where it changes.
let tick = Date.now();
const start = tick;
while (tick === start) tick = Date.now();
const offset = tick / 1e3 - Number(process.hrtime.bigint()) / 1e9;
const now = () => offset + Number(process.hrtime.bigint()) / 1e9;

let file;
const record = (sent, at) => {
  file ??= fs.openSync(process.env.BENCH_FILE, "a");
  fs.writeSync(file, `${sent.toFixed(6)} ${at.toFixed(6)}\n`);
};
const taskList = {
  first_line: async ({ sent }) => {
    const at = now();
    record(sent, at);
  },
  nothing: async () => {
    if (file === undefined) record(now(), now());
  },
};

const DRAIN = {
  concurrentJobs: 24,
  maxPoolSize: 10,
  localQueue: { size: 2000 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};
const LATENCY = { concurrentJobs: 10, maxPoolSize: 11 };

async function work(mode) {
  const preset = { worker: { connectionString, ...(mode === "drain" ? DRAIN : LATENCY) } };
  const runner = await run({ preset, taskList, logger, noHandleSignals: true });
  process.on("SIGTERM", () => runner.stop().then(() => process.exit(0), () => process.exit(0)));
  await runner.promise;
}

async function paced(utils, n, rate, counted) {
  const begin = performance.now() + 100;
  const sent = [];
  for (let number = 0; number < n; number++) {
    const wait = begin + (number * 1000) / rate - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    sent.push(utils.addJob("first_line", { sent: counted ? now() : WARM_UP }));
  }
  await Promise.all(sent);
}

async function untilRecorded() {
  for (let tries = 0; tries < 6000; tries++) {
    if (fs.existsSync(process.env.BENCH_FILE) && fs.statSync(process.env.BENCH_FILE).size > 0) return;
    await new Promise((done) => setTimeout(done, 10));
  }
  throw new Error("the worker did not execute the first job within a minute");
}

async function latency(utils, n, warmUp, rate) {
  await utils.addJob("first_line", { sent: WARM_UP });
  await untilRecorded();
  await paced(utils, warmUp, rate, false);
  console.log("begin");
  const before = process.cpuUsage();
  await paced(utils, n, rate, true);
  const used = process.cpuUsage(before);
  console.log(JSON.stringify({ cpu_s: (used.user + used.system) / 1e6 }));
}

async function timed(n, submit) {
  const begun = performance.now();
  await submit();
  console.log(JSON.stringify({ per_s: n / ((performance.now() - begun) / 1e3) }));
}

async function singles(utils, n, inFlight) {
  let left = n;
  const one = async () => {
    while (left-- > 0) await utils.addJob("first_line", { sent: now() });
  };
  await timed(n, () => Promise.all(Array.from({ length: inFlight }, one)));
}

async function bulk(utils, n, batch) {
  await timed(n, async () => {
    for (let first = 0; first < n; first += batch) {
      const length = Math.min(batch, n - first);
      await utils.addJobs(Array.from({ length }, () => ({ identifier: "nothing", payload: {} })));
    }
  });
}

async function main([verb, ...rest]) {
  if (verb === "prepare") return runMigrations({ connectionString, logger });
  if (verb === "work") return work(rest[0]);
  const [n, ...more] = rest.map(Number);
  const maxPoolSize = verb === "singles" ? more[0] : verb === "latency" ? 4 : 1;
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize, logger });
  await { latency, singles, bulk }[verb](utils, n, ...more);
  await utils.release();
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
