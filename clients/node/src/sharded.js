// A client of sharded filters, as docs/reference/sharding.md specifies them.
import { BloomError, Deadline, checked } from './connection.js';

const PAUSE = 1000; // milliseconds after a failure in which a shard, or the descriptor, is not queried
const BASE_MARK = 'filter: complete';
const TOO_OLD = 'the descriptor is too old';

// zlib's CRC-32, byte by byte: node:zlib has it only from Node.js 20.15 on.
const CRC = Uint32Array.from({ length: 256 }, (_, crc) => {
  for (let bit = 0; bit < 8; bit++) crc = crc >>> 1 ^ (crc & 1 && 0xedb88320);
  return crc;
});

/** The number of the shard of an item. */
export function shardOf(item, shards) {
  let crc = -1;
  for (const byte of Buffer.from(item)) crc = crc >>> 8 ^ CRC[(crc ^ byte) & 255];
  return Math.floor((~crc >>> 0) * shards / 2 ** 32);
}

/** For each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard. */
export function marks(shards) {
  const found = Array(shards);
  for (let number = 0, missing = shards; missing > 0; number++) {
    const item = `${BASE_MARK} ${number}`, shard = shardOf(item, shards);
    if (found[shard] === undefined) missing--;
    found[shard] ??= item;
  }
  return found;
}

/** The shards of one generation: of each its key and its mark. */
class Generation {
  constructor(fields, prefix = '') {
    const number = (name, possible) => {
      const text = fields.get(prefix + name), value = Number(text || NaN);
      if (!possible(value)) throw new BloomError(`the descriptor is damaged: ${prefix}${name} is ${text}`);
      return value;
    };
    const count = number('shards', n => Number.isInteger(n) && n >= 1 && n <= 1024);
    this.number = number('generation', n => Number.isInteger(n) && n >= 1);
    number('error', rate => rate > 0 && rate < 1); // no use here, but a hash without them is damaged
    number('capacity', n => Number.isInteger(n) && n >= 1);
    this.shards = marks(count).map((mark, i) => ({ key: fields.get(prefix + i), mark }));
    const missing = this.shards.findIndex(({ key }) => key === undefined);
    if (missing >= 0) throw new BloomError(`the descriptor is damaged: no key of shard ${prefix}${missing}`);
  }

  /** Key, mark and items of each shard that has some. */
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
    const rule = fields.get('rule'), state = fields.get('state'), poll = fields.get('poll');
    if (rule !== 'crc32' || state !== 'ready') {
      throw new BloomError(`no filter that this client can use: rule ${rule}, state ${state}`);
    }
    this.current = new Generation(fields);
    if ([...fields.keys()].some(field => field.startsWith('next.'))) {
      try {
        const next = new Generation(fields, 'next.');
        if ((fields.get('next.rule') ?? 'crc32') !== 'crc32' || next.number === this.current.number) {
          throw new BloomError('its rule or number');
        }
        this.next = next;
      } catch (error) { // a rebuild might lose what is added now
        this.damage = `the next generation cannot be read: ${error.message}`;
      }
    }
    // After a rebuild `next` is the generation before, until its shards are gone: old clients query those.
    this.isRebuilt = this.next?.number < this.current.number;
    this.base = fields.get('base');
    this.poll = /^[1-9]\d*$/.test(poll) ? poll * 1000 : 10_000;
  }
}

/** Whether an error may come from a descriptor that is out of date. */
const isStale = error =>
  ['WRONGTYPE', 'belongs to shard', 'not found', TOO_OLD].some(text => error.message.includes(text));

export class ShardedFilter {
  failures = 0;
  #client;
  #queries;
  #additions;
  #known = { readAt: 0 }; // when the descriptor was read, and the descriptor if it can be used
  #resumeAt = new Map(); // by key: when it may be queried again

  constructor(client, name, { timeout = 100, addTimeout = 1000 } = {}) {
    this.name = name;
    this.#client = client;
    this.#queries = new Deadline(timeout);
    this.#additions = new Deadline(addTimeout);
  }

  /** The reply to a command on a key, from its primary. */
  #send(deadline, command, key, ...words) {
    const all = [command, key, ...words];
    const isCluster = 'slots' in this.#client;
    return deadline.within(isCluster
      ? this.#client.sendCommand(key, false, all)
      : this.#client.sendCommand(all));
  }

  /** Reads the descriptor again if it is older than `age` milliseconds. Throws if it cannot be used. */
  async #read(deadline, age = this.#known.descriptor?.poll) {
    const now = performance.now();
    if (this.#known.descriptor && now - this.#known.readAt < age) return this.#known;
    const reply = await this.#send(deadline, 'HGETALL', this.name);
    const read = { readAt: now }; // no descriptor if it cannot be used: then the old one must not be used
    if (now >= this.#known.readAt) this.#known = read; // else a newer one was read in the meantime
    read.descriptor = new Descriptor(fieldsOf(reply));
    return read;
  }

  async has(items) {
    const every = [...items], answers = new Map(every.map(item => [item])), stale = [];
    await this.#query([...answers.keys()], answers, undefined, stale);
    if (stale.length) await this.#query(stale, answers, 0);
    return every.map(item => answers.get(item));
  }

  /** Puts answers into `answers`, and into `stale` the items to query again, by a descriptor read anew. */
  async #query(items, answers, age, stale) {
    if (this.#mayQuery(this.name)) { // if it cannot be read, the last one: its shards answer for themselves
      await this.#read(this.#queries, age).catch(() => this.#fail(this.name));
    }
    const { descriptor } = this.#known;
    if (!descriptor) return;
    await Promise.all(descriptor.current.group(items).map(group => this.#queryFilter(group, answers, stale)));
    const absent = items.filter(item => answers.get(item) === false);
    if (descriptor.base === undefined || !absent.length) return;
    await this.#queryFilter({ key: descriptor.base, mark: BASE_MARK, items: absent }, answers, stale);
  }

  async #queryFilter({ key, mark, items }, answers, stale) {
    for (const item of items) answers.set(item, undefined);
    if (!this.#mayQuery(key)) return;
    try {
      const found = checked(await this.#send(this.#queries, 'BF.MEXISTS', key, ...items, mark));
      const complete = Boolean(found.at(-1));
      items.forEach((item, i) => answers.set(item, Boolean(found[i]) || (complete ? false : undefined)));
      if (!complete) this.#fail(key);
    } catch (error) {
      if (stale && isStale(error)) stale.push(...items);
      else this.#fail(key);
    }
  }

  #mayQuery(key) {
    return performance.now() >= (this.#resumeAt.get(key) ?? 0);
  }

  #fail(key) {
    this.failures++;
    this.#resumeAt.set(key, performance.now() + PAUSE);
  }

  async add(items) {
    const every = [...items];
    try {
      await this.#addOnce(every);
    } catch (error) {
      if (!isStale(error)) throw error;
      await this.#addOnce(every, 0);
    }
  }

  async #addOnce(items, age) {
    const { readAt, descriptor } = await this.#read(this.#additions, age);
    const { current, next, damage, isRebuilt, poll } = descriptor;
    if (damage) throw new BloomError(damage);
    const checkAge = () => { // a rebuild counts on every addition to be done by then
      if (performance.now() > readAt + 2 * poll) throw new BloomError(TOO_OLD);
    };
    const insert = async ({ key, items }) =>
      checked(await this.#send(this.#additions, 'BF.INSERT', key, 'NOCREATE', 'ITEMS', ...items));
    checkAge();
    await Promise.all(current.group(items).map(insert));
    checkAge();
    await Promise.all((next?.group(items) ?? []).map(group => insert(group).catch(error => {
      if (!isRebuilt || !/WRONGTYPE|not found/.test(error.message)) throw error;
    }))); // else an old shard is gone, and the current ones have the items
    checkAge();
  }

  async mark() {
    const { descriptor } = await this.#read(this.#additions, 0);
    await this.add(marks(descriptor.current.shards.length));
  }
}

/** The fields of a hash: a list in RESP2, and in RESP3 what the client makes of a map. */
function fieldsOf(reply) {
  if (reply instanceof Map) return reply;
  if (!Array.isArray(reply)) return new Map(Object.entries(reply));
  return new Map(Array.from({ length: reply.length / 2 }, (_, i) => [reply[2 * i], reply[2 * i + 1]]));
}
