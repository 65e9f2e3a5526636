// Runs the guard for tests/clients/python/test_guard.py; guard_worker.py there says what it reads and prints.
import { createInterface } from 'node:readline';
import { createClient } from 'redis';
import { build, connect, Guard } from './guard.mjs';

const url = process.argv[2];
const NEW = 'guard:{users}:new';
const BREAKS = { // what `build` is broken with: commands before the keys are read
  lost: [['UNLINK', NEW]],
  anew: [['UNLINK', NEW], ['BF.RESERVE', NEW, '0.001', '120000']],
  cut: [['CLIENT', 'KILL', 'TYPE', 'normal']]
};
const database = {
  rows: new Map(Array.from({ length: 2000 }, (_, i) => [`user:${i}`, `name ${i}`])),
  asked: 0,
  async get(key) {
    if (key.startsWith('absent')) this.asked++;
    return this.rows.get(key);
  },
  async insert(key, value) { this.rows.set(key, value); },
  commands: [],
  async keys() {
    const client = createClient({ url });
    await client.connect();
    for (const words of this.commands) await client.sendCommand(words);
    client.destroy();
    return this.rows.keys();
  }
};
const guard = new Guard(connect(url, 100), database);
let rounds = 0;

async function round() {
  const keys = [...database.rows.keys()], before = database.asked;
  rounds++;
  const hidden = [];
  const present = [keys.at(-1), ...[0, 1, 2, 3].map(i => keys[(rounds * 4 + i) % keys.length])];
  for (const key of present) if (await guard.lookup(key) === undefined) hidden.push(key);
  for (let i = 0; i < 20; i++) {
    if (await guard.lookup(`absent:${rounds}:${i}`) !== undefined) throw new Error('found what is not there');
  }
  return hidden.length ? `hidden ${hidden}` : `${database.asked - before} ${guard.failures}`;
}

async function run(command, key) {
  if (command === 'round') return round();
  database.commands = command === 'build' && key ? BREAKS[key] : [];
  await (command === 'build' ? build(url, database, 0) : guard.insert(key, `inserted ${key}`));
  return 'ok';
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(await run(...line.split(' ')).catch(error => `raised ${error.stack.replaceAll('\n', ' ')}`));
}
process.exit(); // the guard's client would go on for ever
