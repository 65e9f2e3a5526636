import assert from 'node:assert/strict';
import { createClient, ErrorReply } from 'redis';

// Hash tag: RENAME needs both keys in one slot.
const FILTER = 'guard:{users}', NEW = 'guard:{users}:new';
const ERROR_RATE = 0.01, CAPACITY = 120_000, BATCH = 1000;

const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const client = await createClient({ url }).connect();
const database = new Map(); // replaces a real database
for (let i = 0; i < 100_000; i++) database.set(`user:${i}`, `name ${i}`);
let queries = 0;

async function askDatabase(key) {
  queries++;
  return database.get(key);
}

/** Builds the filter from all existing keys under a temporary name, then renames it. */
async function build() {
  await client.del(NEW);
  await client.bf.reserve(NEW, ERROR_RATE, CAPACITY);
  const keys = [...database.keys()];
  for (let i = 0; i < keys.length; i += BATCH) {
    const batch = keys.slice(i, i + BATCH);
    await client.bf.mAdd(NEW, batch);
    const found = await client.bf.mExists(NEW, batch);
    if (!found.every(Boolean)) throw new Error('the filter does not hold all keys');
  }
  await client.rename(NEW, FILTER);
}

/** Adds the key to the filter and to one under construction, then inserts the row. */
async function insert(key, value) {
  for (const name of [NEW, FILTER]) {
    try {
      await client.bf.insert(name, key, { NOCREATE: true });
      if (!(await client.bf.exists(name, key))) throw new Error('the filter does not hold the key');
    } catch (error) {
      if (!(error instanceof ErrorReply && error.message.includes('not found'))) throw error;
    }
  }
  database.set(key, value);
}

async function lookup(key) {
  try {
    if (!(await client.bf.exists(FILTER, key))) return; // the row certainly does not exist
  } catch (error) {
    if (!(error instanceof ErrorReply)) throw error;
    // "ERR not found": no filter, so ask the database.
  }
  return askDatabase(key);
}

await build();
for (let i = 0; i < 1000; i++) assert.equal(await lookup(`user:${i}`), `name ${i}`);
queries = 0;
for (let i = 0; i < 10_000; i++) assert.equal(await lookup(`attacker:${i}`), undefined);
const passed = queries;
assert(passed <= 160, 'more false positives than a rate of 1 % explains');

await insert('user:new', 'somebody');
assert.equal(await lookup('user:new'), 'somebody');

await client.unlink(FILTER); // as if evicted, expired or deleted by mistake
const found = await lookup('user:1');
assert.equal(found, 'name 1', 'a missing filter hides rows: set bf.missing-key-error');
await insert('user:newer', 'somebody else');
assert.equal(await lookup('user:2'), 'name 2', 'adding one key must not hide the other rows');
assert.equal(await client.exists([FILTER, NEW]), 0);
console.log(`javascript: ${passed} of 10000 lookups of missing keys reached the database`);
await client.close();
