// graphile-worker, a queue for Node: no peer of Python's, only a mark of how fast a PostgreSQL queue can be drained.
//
// At the settings that its page about performance names: a local queue of 500, and completions of the same tick written
// together. Ten jobs at a time were no slower than that page's 24 (medians of 0.98, and of 0.97 with its pool of 25, four
// rounds). Commands as in stage.py: `prepare URL [N]` and `drain URL N`. The
// clock is the same as in clock.py: from the first handler's start until the database has no job left.
//
// The package lives outside the repository, in the folder that PEER_FOLDER names.

import { createRequire } from "node:module";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const CONCURRENCY = 10;
const LOCAL_QUEUE = 500;
const BULK = 1_000;
const POLL_MS = 5;
const DEADLINE_MS = 600_000;

const require = createRequire(path.join(process.env.PEER_FOLDER, "here.js"));
const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Client } = require("pg");
const logger = new Logger(() => () => {});

async function prepare(url, jobs) {
  const utils = await makeWorkerUtils({ connectionString: url, logger });
  try {
    await utils.migrate();
    for (let start = 0; start < jobs; start += BULK) {
      const orders = Array.from({ length: Math.min(BULK, jobs - start) }, (_, nth) => start + nth);
      await utils.addJobs(orders.map((order) => ({ identifier: "noop", payload: { order, note: "x".repeat(80) } })));
    }
  } finally {
    await utils.release();
  }
}

async function drain(url, jobs) {
  const looking = new Client({ connectionString: url });
  await looking.connect();
  let handlers = 0;
  let began, cpuBegan, allStarted;
  const starting = new Promise((resolve) => (allStarted = resolve));

  async function noop() {
    handlers += 1;
    if (handlers === 1) {
      began = performance.now();
      cpuBegan = process.cpuUsage();
    }
    if (handlers === jobs) allStarted();
  }

  const runner = await run({
    preset: {
      worker: {
        connectionString: url,
        concurrentJobs: CONCURRENCY,
        localQueue: { size: LOCAL_QUEUE },
        completeJobBatchDelay: 0,
      },
    },
    logger,
    noHandleSignals: true,
    taskList: { noop },
  });
  const deadline = setTimeout(() => {
    console.error(`${handlers} of ${jobs} handlers started in time, and not all were complete`);
    process.exit(1);
  }, DEADLINE_MS);
  await starting;
  while (Number((await looking.query("SELECT count(*) FROM graphile_worker._private_jobs")).rows[0].count) > 0) {
    await sleep(POLL_MS);
  }
  const seconds = (performance.now() - began) / 1_000;
  const cpu = process.cpuUsage(cpuBegan);
  clearTimeout(deadline);
  await runner.stop();
  await looking.end();
  return { jobs, seconds, cpu_seconds: (cpu.user + cpu.system) / 1_000_000, handlers };
}

const [command, url, jobs] = process.argv.slice(2);
if (command === "prepare") {
  await prepare(url, Number(jobs ?? 0));
} else if (command === "drain" && Number(jobs) > 0) {
  console.log(JSON.stringify(await drain(url, Number(jobs))));
} else {
  console.error("prepare URL [N] | drain URL N");
  process.exit(2);
}
