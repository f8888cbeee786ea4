// The command line of verbs.py for peers in JavaScript.
"use strict";
const fs = require("node:fs");

const WARM_UP = -1; // the moment that a job carries if it is not to be counted
const FIRST = 5; // submissions for each in flight that open connections and are not timed

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
const recordFirst = () => {
  if (file === undefined) record(now(), now());
};

async function paced(client, n, rate, counted) {
  const begin = performance.now() + 100;
  const sent = [];
  for (let number = 0; number < n; number++) {
    const wait = begin + (number * 1000) / rate - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    sent.push(client.one(counted ? now() : WARM_UP));
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

async function latency(client, n, warmUp, rate) {
  await client.one(WARM_UP);
  await untilRecorded();
  await paced(client, warmUp, rate, false);
  console.log("begin");
  const before = process.cpuUsage();
  await paced(client, n, rate, true);
  const used = process.cpuUsage(before);
  console.log(JSON.stringify({ cpu_s: (used.user + used.system) / 1e6 }));
}

async function timed(n, submit) {
  const begun = performance.now();
  await submit();
  console.log(JSON.stringify({ per_s: n / ((performance.now() - begun) / 1e3) }));
}

async function inFlight(client, n, at) {
  let left = n;
  const submit = async () => {
    while (left-- > 0) await client.one(now());
  };
  await Promise.all(Array.from({ length: at }, submit));
}

async function singles(client, n, at) {
  await inFlight(client, FIRST * at, at);
  await timed(n, () => inFlight(client, n, at));
}

async function inBatches(n, batch, submit) {
  for (let first = 0; first < n; first += batch) await submit(Math.min(batch, n - first));
}

const bulk = (client, n, batch) => timed(n, () => inBatches(n, batch, client.many));
const later = (client, n, batch, due) => inBatches(n, batch, (count) => client.later(count, new Date(due * 1000)));

async function run(peer, [verb, ...rest]) {
  if (verb === "prepare") return peer.prepare();
  if (verb === "work") return peer.work(rest[0]);
  const [n, ...more] = rest.map(Number);
  const client = await peer.connect(verb === "singles" ? more[0] : verb === "latency" ? 4 : 1);
  await { latency, singles, bulk, later }[verb](client, n, ...more);
  await client.release();
}

/** `peer` has prepare(), work(mode) and connect(connections), which gives one(sent), many(count), later(count, at). */
function main(peer) {
  run(peer, process.argv.slice(2)).catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

module.exports = { main, now, record, recordFirst };
