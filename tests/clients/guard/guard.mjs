import assert from 'node:assert/strict';
import { createClient, ErrorReply } from 'redis';

const FILTER = 'guard:{users}', NEW = 'guard:{users}:new'; // braces: one slot of a cluster, for RENAME
const ERROR_RATE = 0.01, CAPACITY = 120_000, BATCH = 1000;

const client = await createClient({ url: process.env.REDIS_URL ?? 'redis://127.0.0.1:6379' }).connect();
const database = new Map(); // stands for the database
for (let i = 0; i < 100_000; i++) database.set(`user:${i}`, `name ${i}`);
let queries = 0;

async function askDatabase(key) {
  queries++;
  return database.get(key);
}

/** Makes the filter from all keys there are. Until it is complete it has another name. */
async function build() {
  await client.del(NEW);
  await client.bf.reserve(NEW, ERROR_RATE, CAPACITY);
  const keys = [...database.keys()];
  for (let i = 0; i < keys.length; i += BATCH) {
    const batch = keys.slice(i, i + BATCH);
    await client.bf.mAdd(NEW, batch);
    if (!(await client.bf.mExists(NEW, batch)).every(Boolean)) throw new Error('the filter does not take all keys');
  }
  await client.rename(NEW, FILTER);
}

/** A new row: its key goes into the filter first, and into one that is being built. */
async function insert(key, value) {
  for (const name of [NEW, FILTER]) {
    try {
      await client.bf.insert(name, key, { NOCREATE: true });
      if (!(await client.bf.exists(name, key))) throw new Error('the filter does not take the key');
    } catch (error) {
      if (!(error instanceof ErrorReply && error.message.includes('not found'))) throw error;
    }
  }
  database.set(key, value);
}

async function lookup(key) {
  try {
    if (!(await client.bf.exists(FILTER, key))) return undefined; // certainly no such row
  } catch (error) {
    if (!(error instanceof ErrorReply)) throw error; // "ERR not found": the filter was lost, so it knows nothing
  }
  return askDatabase(key);
}

await build();
for (let i = 0; i < 1000; i++) assert.equal(await lookup(`user:${i}`), `name ${i}`);
queries = 0;
for (let i = 0; i < 10_000; i++) assert.equal(await lookup(`attacker:${i}`), undefined);
const passed = queries;
assert(passed <= 160, '1 % of them are expected, or fewer');

await insert('user:new', 'somebody');
assert.equal(await lookup('user:new'), 'somebody');

await client.unlink(FILTER); // evicted, expired, deleted by mistake
assert.equal(await lookup('user:1'), 'name 1', 'is bf.missing-key-error set? a lost filter turns all away');
await insert('user:newer', 'somebody else');
assert.equal(await lookup('user:2'), 'name 2', 'a key added alone must not turn the others away');
assert.equal(await client.exists([FILTER, NEW]), 0);
console.log(`javascript: ${passed} of 10000 lookups in vain reached the database`);
await client.close();
