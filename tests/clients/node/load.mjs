import assert from 'node:assert/strict';
import { createClient, RESP_TYPES } from 'redis';

const ITEMS = Number(process.env.ITEMS ?? 100_000_000), BATCH = 10_000;
const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const client = await createClient({ url, socket: { reconnectStrategy: false } }).connect();
const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });

/** Sends a packed batch; returns the answers. */
async function bulk(...words) {
  const [count, bits, error] = await binary.sendCommand(words);
  if (error) throw error; // the filter is full, or there is no memory: the first `count` items are in
  return Array.from({ length: Number(count) }, (_, i) => (bits[i >> 3] & (0x80 >> (i & 7))) !== 0);
}

await client.unlink('users');
await client.bf.reserve('users', 0.01, ITEMS);
let added = 0;
for (let start = 0; start < ITEMS; start += BATCH) {
  let lines = ''; // every line ends with \n, so that an empty last item counts
  for (let i = start; i < Math.min(start + BATCH, ITEMS); i++) lines += `user:${i}\n`;
  const isNew = await bulk('BF.BULKADD', 'users', 'NOCREATE', 'LINES', lines);
  added += isNew.filter(Boolean).length;
}

const found = await bulk('BF.BULKEXISTS', 'users', 'LINES', 'user:0\nuser:1\nnobody\n');
assert.deepEqual(found.slice(0, 2), [true, true]);
assert.ok(added >= 0.98 * ITEMS);
console.log(`node: ${added} of ${ITEMS} items were new`);
client.destroy();
