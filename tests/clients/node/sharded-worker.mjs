// Runs the guard and the crawler for tests/clients/python/test_sharded.py; sharded_worker.py there says what it reads and prints.
import { createInterface } from 'node:readline';
import { Crawler, Guard, Sharded, connect, markers, shardOf } from './sharded.mjs';

const url = process.argv[2];
const clients = await Promise.all([500, 1000, 1000].map(timeout => connect(url, timeout)));
const database = {
  rows: new Map(),
  asked: 0,
  async get(key) {
    this.asked++;
    return this.rows.get(key);
  },
  async insert(key, value) { this.rows.set(key, value); }
};
let filter, guard, crawler, idle = true, rounds = 0;

async function lookup(key) {
  const before = database.asked;
  const row = await guard.lookup(key);
  return (row === undefined ? 'none' : 'row') + '?'.repeat(database.asked - before);
}

async function round() {
  rounds++;
  await guard.insert(`node:${rounds}`, 'inserted').catch(error => console.warn('not inserted:', error.message));
  const keys = [...database.rows.keys()], hidden = [];
  const present = [keys.at(-1), ...[0, 1, 2, 3].map(i => keys[(rounds * 4 + i) % keys.length])];
  for (const key of present) if (await guard.lookup(key) === undefined) hidden.push(key);
  const before = database.asked;
  for (let i = 0; i < 5; i++) {
    if (await guard.lookup(`absent:${rounds}:${i}`) !== undefined) throw new Error('found what is not there');
  }
  return hidden.length ? `hidden ${hidden}` : `${database.asked - before} ${filter.failures}`;
}

const commands = {
  use(name, word) {
    idle = word === 'idle';
    filter = new Sharded(name, clients[0], clients[1]);
    guard = new Guard(filter, database);
    crawler = new Crawler(filter, clients[2]);
    database.rows = new Map(Array.from({ length: 2000 }, (_, i) => [`user:${i}`, `name ${i}`]));
  },
  shard: (shards, ...items) => items.map(item => shardOf(item, Number(shards))).join(' '),
  markers: shards => markers(Number(shards)).join(),
  async lookup(...keys) {
    const found = [];
    for (const key of keys) found.push(await lookup(key));
    return found.join(' ');
  },
  insert: key => guard.insert(key, 'inserted'),
  claim: async (...urls) => {
    const [fetch, later] = await crawler.claim(urls);
    return `new ${fetch} later ${later}`;
  },
  fetched: url => crawler.fetched(url),
  keys: () => [...database.rows.keys()].join(' '),
  round: () => idle ? '0 0' : round()
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(' ');
  try {
    console.log(await commands[command](...words) ?? 'ok');
  } catch (error) {
    console.log(`raised ${error.stack.replaceAll('\n', ' ')}`);
  }
}
process.exit(); // the clients would go on for ever
