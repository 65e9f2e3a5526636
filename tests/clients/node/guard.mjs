// A guard in front of a database: a Bloom filter of all keys, asked before the database is.
// A lookup never fails because of the filter, and never hides a row that exists.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

const FILTER = 'guard:{users}', NEW = 'guard:{users}:new'; // {users}: RENAME needs both names in one slot
const COMPLETE = 'guard: complete'; // the item that a build adds last: without it a filter is not believed
const ERROR_RATE = 0.001, CAPACITY = 120_000, BATCH = 1000; // capacity: the rows to expect until the next build
const PAUSE = 1000; // milliseconds after a failure in which only the database is asked
const LONGEST_INSERT = 5000; // milliseconds that insert() can take at most: build() waits that long
const LONGEST_TRANSACTION = 2000; // of these, what database.insert() can take: its timeout, connecting and commit included

// Completes a filter and puts it in the place of the old one, at once. Only one that has the items of this build is
// completed: another build may have begun a new filter under the same name.
const FINISH = `
local own = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
for _, found in ipairs(own) do
  if found == 0 then
    return redis.error_reply('ERR the new filter is lost, or another build has begun')
  end
end
redis.call('BF.ADD', KEYS[1], ARGV[1])
return redis.call('RENAME', KEYS[1], KEYS[2])
`;

/** A client that fails at once while there is no connection, and connects again in the background. */
export function connect(url, timeout) {
  const client = createClient({
    url,
    disableOfflineQueue: true,
    pingInterval: 300,
    // A connection on which nothing happens is replaced; shorter than PAUSE, since a write counts as something.
    socket: { connectTimeout: timeout, socketTimeout: 600, reconnectStrategy: timeout }
  });
  client.on('error', error => console.warn('connection of the guard:', error.message)); // without it Node.js exits
  client.connect().catch(() => {}); // it is an 'error' too
  return client;
}

/** Rejects after some milliseconds: node-redis waits for a reply without end. */
async function within(timeout, reply) {
  const late = new AbortController();
  const fail = sleep(timeout, null, { signal: late.signal }).then(() => { throw new Error('the reply is late'); });
  return Promise.race([reply, fail]).finally(() => { fail.catch(() => {}); late.abort(); });
}

/** Adds items to a filter that exists: NOCREATE, since one with these items only would hide all others. */
async function add(client, timeout, name, items) {
  const command = ['BF.INSERT', name, 'NOCREATE', 'ITEMS', ...items];
  const answers = await within(timeout, client.sendCommand(command));
  const last = answers.at(-1); // node-redis does not throw an error that is inside an array
  if (typeof last !== 'number' && typeof last !== 'boolean') throw new Error(`not all items were added: ${last}`);
}

export class Guard {
  failures = 0; // how often the filter gave no answer: a metric to watch
  #resumeAt = 0;

  /** The client is that of connect(url, 100). The database has get(key), insert(key, value) and keys(). */
  constructor(client, database) {
    Object.assign(this, { client, database });
  }

  /** The row of the key, or undefined. Asks the database unless the filter says that there is no such row. */
  async lookup(key) {
    if (!(await this.isAbsent(key))) return this.database.get(key);
  }

  /** Whether the row certainly does not exist; false also if the filter cannot tell. */
  async isAbsent(key) {
    if (performance.now() < this.#resumeAt) return false;
    let problem;
    try {
      const [found, complete] = await within(100, this.client.bf.mExists(FILTER, [key, COMPLETE]));
      if (complete) return !found;
      problem = 'there is no complete filter';
    } catch (error) { // whatever it is, the database is asked
      problem = error.message;
    }
    this.failures++;
    this.#resumeAt = performance.now() + PAUSE;
    console.warn('the filter gave no answer:', problem);
    return false;
  }

  /** Adds the key to the filters, then the row to the database. If it throws, the row may be missing: try again. */
  async insert(key, value) {
    const begin = performance.now(); // before the first filter is asked, because build() waits from there on
    for (const name of [NEW, FILTER]) { // in this order, because build() renames the first to the second
      try {
        await add(this.client, 1000, name, [key]);
      } catch (error) {
        if (error.message !== 'ERR not found') throw error; // a filter that does not exist needs no key
      }
    }
    if (performance.now() - begin > LONGEST_INSERT - LONGEST_TRANSACTION) {
      throw new Error('the filters took so long that a build may miss the row');
    }
    await this.database.insert(key, value);
  }
}

/** Fills a new filter with all keys and puts it in the place of the old one. If it throws, the old one stays. */
export async function build(url, database, wait = LONGEST_INSERT) {
  // All on one connection: if the server restarts meanwhile, perhaps from an older snapshot, it breaks.
  const client = createClient({ url, socket: { connectTimeout: 10_000, reconnectStrategy: false } });
  client.on('error', () => {}); // the command throws it too
  try {
    await within(10_000, client.connect());
    await within(10_000, client.unlink(NEW));
    await within(10_000, client.bf.reserve(NEW, ERROR_RATE, CAPACITY));
    const thisBuild = [1, 2, 3].map(() => `guard: build ${randomUUID()}`); // three: none is found by accident
    await add(client, 10_000, NEW, thisBuild);
    await sleep(wait); // from here on, each row is in `keys` or its insert() has found NEW
    const keys = [...await database.keys()];
    for (let i = 0; i < keys.length; i += BATCH) await add(client, 10_000, NEW, keys.slice(i, i + BATCH));
    await within(10_000, client.eval(FINISH, { keys: [NEW, FILTER], arguments: [COMPLETE, ...thisBuild] }));
  } finally {
    client.destroy();
  }
}
