// A guard and a crawler on a sharded filter, which docs/sharding.md specifies.
import { setTimeout as sleep } from 'node:timers/promises';
import { createCluster } from 'redis';

// Begins the items that are added last: without its one, a shard's "no" is not believed.
export const COMPLETE = 'filter: complete';
const PAUSE = 1000; // milliseconds after a failure in which a shard, or the descriptor, is not asked for
const LONGEST_TRANSACTION = 2000; // milliseconds that database.insert() can take: its timeout, connecting and commit included
const REPLICAS = 1; // how many replicas must have a key before its row is written
const LEASE = 600; // seconds that a crawler has for a page
const TOO_OLD = 'the descriptor is too old'; // an error of this program

// zlib's CRC-32, byte by byte: node:zlib has it only from Node.js 20.15 on.
const CRC = Uint32Array.from({ length: 256 }, (_, crc) => {
  for (let bit = 0; bit < 8; bit++) crc = crc >>> 1 ^ (crc & 1 && 0xedb88320);
  return crc;
});

export function shardOf(item, shards) {
  let crc = -1;
  for (const byte of Buffer.from(item)) crc = crc >>> 8 ^ CRC[(crc ^ byte) & 255];
  return Math.floor((~crc >>> 0) * shards / 2 ** 32);
}

for (const [item, shards, shard] of [['a', 8, 7], ['user:1', 1000, 482], ['münchen', 128, 34]]) {
  if (shardOf(item, shards) !== shard) throw new Error(`shardOf('${item}', ${shards}) is not ${shard}`);
}

/** For each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard. */
export function markers(shards) {
  const found = Array(shards);
  for (let number = 0, missing = shards; missing > 0; number++) {
    const item = `${COMPLETE} ${number}`, shard = shardOf(item, shards);
    if (found[shard] === undefined) missing--;
    found[shard] ??= item;
  }
  return found;
}

/** A client of a cluster that fails at once while a node has no connection, and connects again in the background. */
export async function connect(url, timeout) {
  const cluster = createCluster({
    rootNodes: [{ url }],
    RESP: 3, // with RESP2 node-redis hides an error that is inside an array
    topologyRefreshOnReconnectionAttemptStrategy: 500, // milliseconds without a node until the others are asked who has its slots
    defaults: {
      disableOfflineQueue: true,
      pingInterval: 300,
      socket: { connectTimeout: timeout, socketTimeout: 1000, reconnectStrategy: timeout }
    }
  });
  cluster.on('error', error => console.warn('connection of the filter:', error.message)); // without it Node.js exits
  return cluster.connect();
}

/** Rejects after some milliseconds: node-redis waits for a reply without end. */
async function within(timeout, reply) {
  const late = new AbortController();
  const fail = sleep(timeout, null, { signal: late.signal }).then(() => { throw new Error('the reply is late'); });
  return Promise.race([reply, fail]).finally(() => { fail.catch(() => {}); late.abort(); });
}

/** The shards of one generation: of each its key and the item that marks it as complete. */
class Shards {
  constructor(fields, prefix = '') {
    const number = (name, least, most, possible = Number.isInteger) => {
      const text = fields[prefix + name], value = Number(text || NaN);
      if (!(possible(value) && value >= least && value <= most)) throw new Error(`${prefix}${name} is ${text}`);
      return value;
    };
    const count = number('shards', 1, 1024);
    this.generation = number('generation', 1, Infinity);
    number('error', 0, 1, rate => rate > 0 && rate < 1); // these two have no use here, but a hash without them is damaged
    number('capacity', 1, Infinity);
    this.shards = markers(count).map((mark, i) => ({ key: fields[prefix + i], mark }));
    const missing = this.shards.findIndex(({ key }) => key === undefined);
    if (missing >= 0) throw new Error(`the key of shard ${prefix}${missing} is missing`);
  }

  /** The items by shard: key, mark, items. */
  group(items) {
    const groups = new Map();
    for (const item of items) {
      const shard = this.shards[shardOf(item, this.shards.length)];
      if (!groups.has(shard)) groups.set(shard, []);
      groups.get(shard).push(item);
    }
    return [...groups].map(([shard, items]) => ({ ...shard, items }));
  }
}

class Descriptor {
  constructor(fields) {
    const { rule, state, base, poll } = fields;
    if (rule !== 'crc32' || state !== 'ready') {
      throw new Error(`no filter that this client can use: rule ${rule}, state ${state}`);
    }
    this.current = new Shards(fields);
    if (Object.keys(fields).some(field => field.startsWith('next.'))) {
      try {
        const rule = fields['next.rule'] ?? 'crc32';
        if (rule !== 'crc32') throw new Error(`next.rule is ${rule}`);
        this.next = new Shards(fields, 'next.');
      } catch (error) { // a rebuild might lose what is added now
        this.damage = `the next generation cannot be read: ${error.message}`;
      }
    }
    // After a rebuild `next` is the generation before, until its shards are gone: old clients still ask those.
    this.isRebuilt = this.next?.generation < this.current.generation;
    this.base = base;
    this.poll = /^[1-9]\d*$/.test(poll) ? poll * 1000 : 10_000;
  }
}

/** Whether an error may come from a descriptor that is out of date. */
function isStale(error) {
  return ['WRONGTYPE', 'belongs to shard', 'not found', TOO_OLD].some(text => error.message.includes(text));
}

/** A sharded filter. */
export class Sharded {
  failures = 0; // how often the filter gave no answer: a metric to watch
  #known = { readAt: 0 }; // when the descriptor was read, and the descriptor if it can be used
  #resumeAt = new Map(); // by key: when it may be asked again

  /** The reader is that of connect(url, 100), the writer, on which WAIT blocks, that of connect(url, 1000). */
  constructor(name, reader, writer) {
    Object.assign(this, { name, reader, writer });
  }

  /** When the descriptor was read, and the descriptor. Reads it again if this one is older than `age` milliseconds. Throws if it
      cannot be had or used. */
  async #read(cluster, timeout, age = this.#known.descriptor?.poll) {
    const now = performance.now();
    if (this.#known.descriptor && now - this.#known.readAt < age) return this.#known;
    const fields = await within(timeout, cluster.hGetAll(this.name));
    const read = { readAt: now }; // without a descriptor if it cannot be used: the old one must not be used either
    if (now >= this.#known.readAt) this.#known = read; // else a newer one was read meanwhile
    read.descriptor = new Descriptor(fields);
    return read;
  }

  /** A Map from items to true, false, or undefined if there is no answer. Never throws. */
  async ask(items) {
    const answers = new Map(items.map(item => [item])), stale = [];
    await this.#askOnce([...answers.keys()], answers, undefined, stale);
    if (stale.length) await this.#askOnce(stale, answers, 0);
    return answers;
  }

  /** Puts answers into `answers`, and into `stale` the items to ask again, with a descriptor that is read again. */
  async #askOnce(items, answers, age, stale) {
    if (this.#mayAsk(this.name)) { // else, or if that fails, the one that was read last: its shards answer for themselves
      await this.#read(this.reader, 100, age).catch(error => this.#fail(this.name, error.message));
    }
    const { descriptor } = this.#known;
    if (!descriptor) return;
    await Promise.all(descriptor.current.group(items).map(group => this.#askFilter(group, answers, stale)));
    const absent = items.filter(item => answers.get(item) === false);
    if (descriptor.base === undefined || !absent.length) return;
    await this.#askFilter({ key: descriptor.base, mark: COMPLETE, items: absent }, answers, stale);
  }

  async #askFilter({ key, mark, items }, answers, stale) {
    for (const item of items) answers.set(item, undefined);
    if (!this.#mayAsk(key)) return;
    try {
      const found = await within(100, this.reader.sendCommand(key, true, ['BF.MEXISTS', key, ...items, mark]));
      const complete = found.at(-1);
      if (complete instanceof Error) throw complete; // node-redis does not throw an error that is inside an array
      items.forEach((item, i) => answers.set(item, found[i] || (complete ? false : undefined)));
      if (!complete) this.#fail(key, 'it is lost, or not complete');
    } catch (error) {
      if (stale && isStale(error)) stale.push(...items);
      else this.#fail(key, error.message);
    }
  }

  #mayAsk(key) {
    return performance.now() >= (this.#resumeAt.get(key) ?? 0);
  }

  /** Notes that a key gave no answer, and leaves it alone for a while. */
  #fail(key, problem) {
    this.failures++;
    this.#resumeAt.set(key, performance.now() + PAUSE);
    console.warn(`${key} gave no answer: ${problem}`);
  }

  /** Adds items; resolves to the descriptor that says where. If it throws, some may be missing: try again. */
  async add(items, replicas = 0) {
    try {
      return await this.#addOnce(items, replicas);
    } catch (error) {
      if (!isStale(error)) throw error;
      return this.#addOnce(items, replicas, 0);
    }
  }

  async #addOnce(items, replicas, age) {
    const { readAt, descriptor } = await this.#read(this.writer, 1000, age);
    const { current, next, damage, isRebuilt, poll } = descriptor;
    if (damage) throw new Error(damage);
    const checkAge = () => { // whoever rebuilds the filter counts on every addition to be done by then
      if (performance.now() > readAt + 2 * poll) throw new Error(TOO_OLD);
    };
    checkAge();
    await Promise.all(current.group(items).map(group => this.#insert(group, replicas)));
    checkAge();
    await Promise.all((next?.group(items) ?? []).map(group => this.#insert(group, replicas).catch(error => {
      if (!isRebuilt || !/WRONGTYPE|not found/.test(error.message)) throw error;
    }))); // else an old shard is gone, and the current ones have the items
    checkAge();
    return descriptor;
  }

  async #insert({ key, items }, replicas) {
    const command = ['BF.INSERT', key, 'NOCREATE', 'ITEMS', ...items];
    const last = (await within(1000, this.writer.sendCommand(key, false, command))).at(-1);
    if (last instanceof Error) throw last;
    if (!replicas) return;
    // WAIT waits for what its connection has written, and BF.INSERT writes nothing if the filter has the items.
    const write = ['SET', `${key.split('}')[0]}}:wait`, '1', 'EX', '60'];
    await within(1000, this.writer.sendCommand(key, false, write));
    // A pipeline goes to the node of the key; by itself node-redis sends WAIT to all nodes.
    const wait = this.writer.multi(key).addCommand(key, false, ['WAIT', `${replicas}`, '500']);
    const [done] = await within(1000, wait.execAsPipeline());
    if (!(done >= replicas)) throw new Error('too few replicas have the items');
  }
}

/** Asks the database only for keys that the filter has, or gives no answer for. */
export class Guard {
  /** The database has get(key) and insert(key, value). */
  constructor(filter, database) {
    Object.assign(this, { filter, database });
  }

  /** The row of the key, or undefined. */
  async lookup(key) {
    if ((await this.filter.ask([key])).get(key) !== false) return this.database.get(key);
  }

  /** Adds the key to the filter, then the row to the database. If it throws, the row may be missing: try again. */
  async insert(key, value) {
    const begin = performance.now();
    const { poll } = await this.filter.add([key], REPLICAS);
    if (performance.now() - begin > poll - LONGEST_TRANSACTION) {
      throw new Error('the filter took so long that a rebuild may miss the row');
    }
    await this.database.insert(key, value);
  }
}

/** Claims pages that nobody has fetched, as docs/recipes/crawler.md does on a filter in one key. */
export class Crawler {
  /** The cluster, for the claims, is that of connect(url, 1000). */
  constructor(filter, cluster) {
    Object.assign(this, { filter, cluster });
  }

  /** [the URLs that are the caller's to fetch, for LEASE seconds; those to offer again later] */
  async claim(urls) {
    const mine = [], fetch = [], later = [];
    await Promise.all([...new Set(urls)].map(async url => {
      try {
        const claim = this.cluster.set(`claim:${url}`, 'mine', { NX: true, EX: LEASE });
        if (await within(1000, claim)) mine.push(url);
      } catch {
        later.push(url);
      }
    }));
    const answers = await this.filter.ask(mine); // after the claim: whoever ends one has marked the page before
    await Promise.all(mine.map(async url => {
      if (answers.get(url) === false) return fetch.push(url);
      if (answers.get(url) === undefined) later.push(url);
      await this.#release(url);
    }));
    return [fetch, later];
  }

  /** Marks a page after it was fetched and its results are stored. If it throws, try again within LEASE. */
  async fetched(url) {
    await this.filter.add([url]);
    await this.#release(url);
  }

  async #release(url) {
    await within(1000, this.cluster.unlink(`claim:${url}`)).catch(() => {}); // the claim ends by itself after LEASE
  }
}
