// graphile-worker with the verbs of verbs.py. Drain: a local queue of 2,000 and batched completion, as its page on
// performance recommends; latency: its defaults, with 10 jobs at a time. Functions are JavaScript.
"use strict";
const { run, makeWorkerUtils, runMigrations } = require("graphile-worker");
const { Logger } = require("@graphile/logger");
const { main, now, record, recordFirst } = require("./node_verbs.cjs");

const connectionString = process.env.BENCH_DSN;
const logger = new Logger(() => () => undefined);

const taskList = {
  first_line: async ({ sent }) => {
    const at = now();
    record(sent, at);
  },
  nothing: async () => recordFirst(),
  due: async () => record(1, now()),
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

async function connect(connections) {
  const utils = await makeWorkerUtils({ connectionString, maxPoolSize: connections, logger });
  const many = (length, job) => utils.addJobs(Array.from({ length }, () => job));
  return {
    one: (sent) => utils.addJob("first_line", { sent }),
    many: (count) => many(count, { identifier: "nothing", payload: {} }),
    later: (count, runAt) => many(count, { identifier: "due", payload: {}, runAt }),
    release: () => utils.release(),
  };
}

main({ prepare: () => runMigrations({ connectionString, logger }), work, connect });
