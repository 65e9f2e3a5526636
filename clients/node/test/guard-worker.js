// Runs the guard for tests/clients/python, where guard_worker.py says what it reads and prints.
import { createInterface } from 'node:readline';
import { createClient } from 'redis';
import { Guard } from '../src/index.js';

const client = createClient({ url: process.argv[2] });
const NEW = 'guard:{users}:new';
const BREAKS = { // what `build` is broken with: commands before the keys are read
  lost: [['UNLINK', NEW]],
  anew: [['UNLINK', NEW], ['BF.RESERVE', NEW, '0.001', '120000']],
  cut: [['CLIENT', 'KILL', 'TYPE', 'normal']]
};
const rows = new Map(Array.from({ length: 2000 }, (_, i) => [`user:${i}`, Date.now()])); // with the time of their writing
const guard = new Guard(client, 'users', {
  capacity: 120_000,
  commitWithin: 500,
  catchUp: since => [...rows].filter(([, time]) => time >= since.getTime()).map(([key]) => key)
});
let asked = 0, rounds = 0;

const fetch = key => {
  if (key.startsWith('absent')) asked++;
  return rows.get(key);
};

async function* keys(commands) {
  const other = await client.duplicate().connect();
  for (const words of commands) await other.sendCommand(words);
  other.destroy();
  yield* [...rows.keys()];
}

const commands = {
  build: how => guard.build(() => keys(BREAKS[how] ?? [])),
  insert: async key => {
    await guard.insert(key);
    rows.set(key, Date.now());
  },
  round: async () => {
    const every = [...rows.keys()], before = asked, hidden = [];
    rounds++;
    const present = [every.at(-1), ...[0, 1, 2, 3].map(i => every[(rounds * 4 + i) % every.length])];
    for (const key of present) if (await guard.lookup(key, fetch) === undefined) hidden.push(key);
    for (let i = 0; i < 20; i++) {
      if (await guard.lookup(`absent:${rounds}:${i}`, fetch) !== undefined) throw new Error('found what is not there');
    }
    return hidden.length ? `hidden ${hidden}` : `${asked - before} ${guard.stats.lookupFailures}`;
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  const [command, key] = line.split(' ');
  const done = commands[command](key).then(result => result ?? 'ok');
  console.log(await done.catch(error => `raised ${error.stack.replaceAll('\n', ' ')}`));
}
process.exit(); // without close(): the server may be gone
