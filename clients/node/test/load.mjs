import { createClient } from 'redis';
import { bulk } from 'redis-bloom';

const ITEMS = Number(process.env.ITEMS ?? 100_000_000);
const url = process.env.REDIS_URL ?? 'redis://127.0.0.1:6379';
const client = await createClient({ url, socket: { reconnectStrategy: false } }).connect();

function* users() {
  for (let i = 0; i < ITEMS; i++) yield `user:${i}`;
}

await client.unlink('users');
await client.bf.reserve('users', 0.01, ITEMS);
const added = await bulk.add(client, 'users', users(), 'NOCREATE');
const known = await bulk.exists(client, 'users', ['user:0', 'user:1', 'nobody']);
if (!known.at(0) || !known.at(1)) throw new Error('items are missing');
console.log(`node: ${added.count()} of ${ITEMS} items were new`);
client.destroy();
