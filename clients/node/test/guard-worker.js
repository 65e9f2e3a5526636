// A guard in a process of its own, for the test of the library for Python: both guards have one filter.
//
//     node guard-worker.js URL FILE
//
// FILE is the database: a line `key milliseconds` for each row. Each line of standard input is a command.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { createClient } from 'redis';
import { Guard } from '../src/index.js';

const [url, file] = process.argv.slice(2);
const rows = () => readFileSync(file, 'utf8').split('\n').filter(Boolean).map(line => line.split(' '));
const guard = new Guard(createClient({ url }), 'users', {
  capacity: 10_000,
  commitWithin: 200,
  margin: 1500,
  timeout: 500,
  catchUp: since => rows().filter(([, time]) => time >= since.getTime()).map(([key]) => key),
  log: () => {}
});
const commands = {
  lookup: async key => await guard.lookup(key, () => 'passed') ?? 'absent',
  insert: async key => await guard.insert(key) ?? 'ok',
  catchUps: async () => guard.stats.catchUps
};
for await (const line of createInterface({ input: process.stdin })) {
  const [command, key] = line.split(' ');
  console.log(await commands[command](key).catch(error => `threw ${error.message}`));
}
await guard.close();
