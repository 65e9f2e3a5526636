// Runs a guard for tests/clients/python/test_guard_library.py, whose `Remote` says what this program
// reads and prints: `model-worker.js URL ROWS`.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { createClient } from 'redis';
import { Guard } from '../src/index.js';

const [url, path] = process.argv.slice(2);
const rows = since => readFileSync(path, 'utf8').split('\n').filter(Boolean).map(line => line.split(' '))
  .filter(([time]) => time * 1000 >= since.getTime()).map(([, key]) => key);
const guard = new Guard(createClient({ url }), 'users', {
  capacity: 10_000,
  commitWithin: 200,
  margin: 1500,
  timeout: 500,
  insertTimeout: 500,
  catchUp: rows,
  log: () => {}
});
const commands = {
  insert: key => guard.insert(key),
  lookup: async key => await guard.lookup(key, () => 'possible') ?? 'absent',
  build: () => guard.build(() => rows(new Date(0))),
  stats: async () => `${guard.stats.saved} ${guard.stats.catchUps}`
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, key] = line.split(' ');
  const done = commands[command](key).then(result => result ?? 'ok');
  console.log(await done.catch(error => `raised ${error.stack.replaceAll('\n', ' ')}`));
}
process.exit(); // without close(): the server may be gone
