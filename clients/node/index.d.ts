/** Bloom filters of redis-bloom in applications, with node-redis. */

/** A key or an item: a string stands for its bytes in UTF-8. */
export type Key = string | Buffer;
/** Keys from memory, from a generator, or as a database yields them. */
export type Keys = Iterable<Key> | AsyncIterable<Key>;

/** What the library needs of a client of node-redis, version 5 or 6 (`createClient`). */
export interface Client {
  duplicate(overrides?: any): any;
  sendCommand(args: readonly (string | Buffer)[], options?: any): Promise<unknown>;
}

/** An error of this library, not of the server. */
export class BloomError extends Error {}

export interface GuardOptions {
  /** Rows to expect until the next build; beyond it the filter grows and gets slower. */
  capacity: number;
  /** Of the lookups of absent rows, the share that still reaches the database. 0.001 if not given. */
  error?: number;
  /**
   * The keys of all rows written since that date, read from the primary database. Without it, lookups go to
   * the database after a restart until the next build.
   */
  catchUp?: (since: Date) => Keys | Promise<Keys>;
  /**
   * What `insert` does if the server does not take a key: `'raise'` (if not given) throws, so that the row
   * is not written. `'later'` returns, and adds the key in the background; until then lookups of this
   * guard pass the key on, and other processes hide its row.
   */
  onUnavailable?: 'raise' | 'later';
  /** Milliseconds for a connection and for each reply to a lookup; 100 if not given. */
  timeout?: number;
  /** The same for inserts; 1000 if not given. */
  insertTimeout?: number;
  /** A row commits within this many milliseconds from the call of `insert`, or never; 5000 if not given. */
  commitWithin?: number;
  /**
   * A row is older than the call of its insert by this many milliseconds at most; 60,000 if not given.
   * The date that `catchUp` gets is earlier by this margin.
   */
  margin?: number;
  /** Milliseconds between two catch-ups for rows that are written past the guard; 0 (if not given): none. */
  refresh?: number;
  /** Takes a message, each kind of failure at most once a second; `console.warn` if not given. */
  log?: (message: string) => void;
}

/** What happened so far in this process. */
export interface Stats {
  /** Lookups of absent rows that did not reach the database. */
  readonly saved: number;
  /** Keys for which the database was asked. */
  readonly passed: number;
  /** How often the filter gave no answer that could be trusted; it is not queried in the second after. */
  readonly lookupFailures: number;
  /** Inserts that the filter did not take, whether they threw or wait for later. */
  readonly insertFailures: number;
  /** Keys that were added later. */
  readonly late: number;
  readonly catchUps: number;
  readonly catchUpFailures: number;
  readonly builds: number;
}

/** A filter of all keys in front of a database. Lookups never hide a row, and never throw because of the filter. */
export class Guard {
  /** Takes the address and the credentials of `client`, with connections and timeouts of its own. */
  constructor(client: Client, name: string, options: GuardOptions);

  /** The name of the filter on the server. */
  readonly filter: string;
  readonly stats: Stats;

  /** Returns `fetch(key)`. If the row certainly does not exist, returns undefined without calling `fetch`. */
  lookup<K extends Key, Row>(key: K, fetch: (key: K) => Row | Promise<Row>): Promise<Row | undefined>;

  /** `fetch` of those keys whose rows may exist, in one call, with an empty array if there is none. */
  lookupMany<K extends Key, Rows>(keys: Iterable<K>, fetch: (keys: K[]) => Rows | Promise<Rows>): Promise<Rows>;

  /** Adds keys before their rows are written. If it throws, do not write them: try again. */
  insert(...keys: Key[]): Promise<void>;

  /**
   * Fills a new filter with all keys and puts it in the place of the old one. If it throws, the old one
   * stays. Keys must be read when they are iterated, not before: for an array pass a function that makes it.
   */
  build(keys: Keys | (() => Keys | Promise<Keys>)): Promise<void>;

  /** What the background does every second, now: late keys, the heartbeat, a catch-up if one is due. */
  tick(): Promise<void>;

  /**
   * Ends the background and the connections; adds late keys if the server is there. It waits 2 seconds at
   * most for a `catchUp` that runs, and `insertTimeout` at most for each reply of the server.
   */
  close(): Promise<void>;
}

export interface SeenOptions {
  /** Different items in 1.25 x `within`, or of all time without `within`. */
  capacity: number;
  /** The share of new items that count as seen; 0.001 if not given. */
  error?: number;
  /** Milliseconds for which an item is remembered; without it nothing is forgotten. */
  within?: number;
  /** Whether an item that is added again is remembered for `within` from then on; true if not given. */
  refresh?: boolean;
  /** Milliseconds that a claim holds; 600,000 if not given. */
  lease?: number;
}

/** What was seen lately: a filter, which the first `add` creates with its window; and claims, to do things once. */
export class Seen {
  /** Uses `client` as it is. */
  constructor(client: Client, name: string, options: SeenOptions);
  /** The name of the filter on the server. */
  readonly key: string;
  /** Marks an item as seen. Returns whether it was new. */
  add(item: Key): Promise<boolean>;
  addMany(items: Iterable<Key>): Promise<boolean[]>;
  /** Whether the item was seen; nothing changes. */
  has(item: Key): Promise<boolean>;
  hasMany(items: Iterable<Key>): Promise<boolean[]>;
  /** Those of the items that nobody has done or has claimed: they are the caller's now, for `lease`. */
  claim<K extends Key>(items: Iterable<K>): Promise<K[]>;
  /** Marks a claimed item as seen, after its work is stored, and ends the claim. */
  done(item: Key): Promise<void>;
  /** Ends a claim without marking the item. */
  release(item: Key): Promise<void>;
}

/** What `ShardedFilter` needs: a client of `createCluster`, or of `createClient`. */
export interface ShardClient {
  sendCommand(...args: any[]): Promise<unknown>;
}

/** A client of sharded filters (docs/reference/sharding.md), which `redis-bloom create --shards` makes. Rebuilds are followed. */
export class ShardedFilter {
  /** Uses `client` as it is. Milliseconds for replies to `has` and to `add`: 100 and 1000 if not given. */
  constructor(client: ShardClient, name: string, options?: { timeout?: number; addTimeout?: number });
  readonly name: string;
  /** How often the descriptor or a shard gave no answer; it is not queried in the second after. */
  readonly failures: number;
  /** Adds items to their shards, also those of a rebuild. If it throws, some may be missing: add them again. */
  add(items: Iterable<Key>): Promise<void>;
  /** True, false (certainly not added), or undefined: no answer that can be trusted. Never throws. */
  has(items: Iterable<Key>): Promise<(boolean | undefined)[]>;
  /** Marks the shards as complete, after all items were added: without its mark, a shard's "no" is not believed. */
  mark(): Promise<void>;
}

/** Packed batches: all items of a command in one string, all answers in a string of bits. */
export namespace bulk {
  /** Text or bytes from any iterable, or a typed array, whose elements are sent as they lie in memory. */
  type Items = Keys | Exclude<NodeJS.TypedArray, Buffer>;

  /** Booleans in the order of the items. */
  class Answers implements Iterable<boolean> {
    readonly length: number;
    /** The most significant bit of byte 0 is the answer for item 0; unused bits are 0. */
    readonly bits: Buffer;
    at(index: number): boolean | undefined;
    /** How many answers are yes. */
    count(): number;
    [Symbol.iterator](): Iterator<boolean>;
  }

  /** The server could not add all items: the filter is full, or there is no memory. */
  class PartlyDone extends BloomError {
    /** Of the items that it added. */
    readonly answers: Answers;
  }

  /**
   * Adds items, 10,000 a command. Returns for each whether it was new. `options` are words of BF.INSERT,
   * such as `'NOCREATE'`. If the connection breaks, send all items again: to add an item twice is harmless,
   * except in a COUNTING filter.
   */
  function add(client: Client, key: Key, items: Items, ...options: (string | number)[]): Promise<Answers>;

  /** Returns for each item whether it was probably added. False is certain. */
  function exists(client: Client, key: Key, items: Items): Promise<Answers>;

  /** Items with their lengths: the format LENGTHS of BF.BULKADD. */
  function pack(items: Iterable<Key>): Buffer;
}
