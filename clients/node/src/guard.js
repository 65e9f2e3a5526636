// A guard in front of a database: a Bloom filter of all keys, queried before the database is.
//
// docs/internals/guard.md has the protocol: processes in all three languages may share a filter.
// guard.lua has the scripts, and says what is in the keys.
import { createHash, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { pack } from './bulk.js';
import { BloomError, Connection, Deadline, batches, checked } from './connection.js';

/** The scripts by their names. */
const LUA = Object.fromEntries(readFileSync(new URL('guard.lua', import.meta.url), 'utf8')
  .split('\n--- ').slice(1).map(part => part.split(/\n(.*)/s)));
const script = name => LUA.common + LUA[name];
const lookupScript = token => LUA.lookup.replace('TOKEN', token);

const BATCH = 1000;
const PAUSE = 1000; // milliseconds after a failed lookup in which only the database is queried
const VERIFY = 1000; // milliseconds without a lookup after which the next one first compares the server's identity
const TICK = 1000; // milliseconds between two heartbeats
// Milliseconds without news of a process with keys for later, until a catch-up adds its rows.
const STALE = 60_000;
const CLOSE = 2000; // milliseconds that `close` waits for the background, whose `catchUp` may hang
const JOB_TIMEOUT = 10_000; // milliseconds for each reply to a build

const DEFAULTS = {
  error: 0.001,
  onUnavailable: 'raise',
  timeout: 100,
  insertTimeout: 1000,
  commitWithin: 5000,
  margin: 60_000,
  refresh: 0,
  log: message => console.warn(message)
};

/** A key as node-redis sends it. */
function word(key) {
  if (typeof key === 'string' || Buffer.isBuffer(key)) return key;
  if (key instanceof Uint8Array) return Buffer.from(key);
  throw new TypeError('a key is a string, a Buffer or a Uint8Array');
}

/** A key as it is in the set of waiting keys: equal for a string and for its bytes. */
const bytes = key => Buffer.from(key).toString('latin1');

export class Guard {
  stats = {
    saved: 0,
    passed: 0,
    lookupFailures: 0,
    insertFailures: 0,
    late: 0,
    catchUps: 0,
    catchUpFailures: 0,
    builds: 0
  };
  #client;
  #options;
  #keys; // filter, state, new filter, lock: in one slot, because of the braces
  #id = randomUUID();
  #reader;
  #writer;
  #token = ''; // of the lookup script that a trusted server has
  #sha = '';
  #lost = ''; // the token whose script the server did not have
  #verifyAt = 0; // when the identity of the server is compared again
  #resumeAt = 0; // when lookups may query the filter again
  #logAt = new Map(); // by kind, so that the background does not hide what lookups say
  #known = false; // whether the server knows that this guard may have late keys
  #waiting = new Set(); // the keys for later
  #ticking; // the tick that runs
  #timer;
  #ends = new AbortController();

  constructor(client, name, options) {
    const all = this.#options = { ...DEFAULTS, ...options };
    if (!name || !['raise', 'later'].includes(all.onUnavailable) || !(all.capacity > 0)) {
      throw new TypeError("a guard needs a name and a capacity; onUnavailable is 'raise' or 'later'");
    }
    if (!all.catchUp && (all.refresh || all.onUnavailable === 'later')) {
      throw new TypeError("refresh and onUnavailable: 'later' need catchUp");
    }
    this.#client = client;
    this.#keys = ['', ':state', ':new', ':lock'].map(end => `guard:{${name}}${end}`);
    this.#reader = new Connection(client, all.timeout);
    this.#writer = new Connection(client, all.insertTimeout);
  }

  /** The name of the filter on the server. */
  get filter() {
    return this.#keys[0];
  }

  // --- Lookups -----------------------------------------------------------------------------------

  async lookup(key, fetch) {
    const [absent] = await this.#absent([key]);
    return absent ? undefined : fetch(key);
  }

  async lookupMany(keys, fetch) {
    const every = [...keys], absent = await this.#absent(every);
    return fetch(every.filter((_, i) => !absent[i]));
  }

  /** Of each key whether its row certainly does not exist. Never throws. */
  async #absent(keys) {
    this.#start();
    let found = '', waits = [];
    if (keys.length && performance.now() >= this.#resumeAt) {
      try {
        const words = keys.map(word);
        // Before the query: a key that ceases to wait during it may have been added after it.
        if (this.#waiting.size) waits = words.map(key => this.#waiting.has(bytes(key)));
        found = await this.#query(words);
      } catch (error) { // whatever it is, the database is queried
        if (error.message.startsWith('NOSCRIPT')) this.#lost = this.#token || this.#lost; // '': another lookup was first
        this.#token = '';
        this.#resumeAt = performance.now() + PAUSE;
        this.stats.lookupFailures++;
        this.#warn('the filter gave no answer', error);
      }
    }
    const absent = keys.map((_, i) => found[i] === '0' && !waits[i]);
    const saved = absent.filter(Boolean).length;
    this.stats.saved += saved;
    this.stats.passed += keys.length - saved;
    return absent;
  }

  /** Of each key a digit: 1 if the filter has it. */
  async #query(keys) {
    const now = performance.now();
    if (!this.#token || now > this.#verifyAt) await this.#verify();
    let answers = '';
    for (let start = 0; start < keys.length; start += BATCH) {
      const batch = keys.slice(start, start + BATCH);
      const found = await this.#reader.send(
        ['EVALSHA', this.#sha, '2', this.#keys[0], this.#keys[1], ...batch]);
      if (found === null) throw new BloomError(NOT_TRUSTED);
      answers += found;
    }
    this.#verifyAt = now + VERIFY;
    return answers;
  }

  /** Learns the token, or makes a new one if the server has forgotten the script of the last one. */
  async #verify() {
    let [, token] = await this.#script(this.#reader, lookupScript(''), 2);
    if (token && token === this.#lost) token = await this.#trust(this.#reader);
    if (!token) throw new BloomError(NOT_TRUSTED);
    this.#token = token;
    this.#sha = createHash('sha1').update(lookupScript(token)).digest('hex');
  }

  // --- Inserts -----------------------------------------------------------------------------------

  async insert(...keys) {
    this.#start();
    const words = keys.map(word), begin = performance.now();
    try {
      await this.#add(words);
      if (performance.now() - begin > this.#options.commitWithin / 2) {
        throw new BloomError('the filter took so long that a catch-up may miss the row');
      }
    } catch (error) {
      this.stats.insertFailures++;
      // After its end nothing adds keys any more.
      if (this.#ends.signal.aborted || this.#options.onUnavailable !== 'later' || !this.#known) throw error;
      for (const key of words) this.#waiting.add(bytes(key));
      this.#warn('the filter takes keys later', error);
    }
  }

  /** Adds keys to the filters that exist; returns the identities of the servers that took them. */
  async #add(keys) {
    const servers = new Set();
    for (let start = 0; start < keys.length; start += BATCH) {
      const batch = keys.slice(start, start + BATCH);
      servers.add(await this.#script(this.#writer, script('insert'), 3, batch));
    }
    return servers;
  }

  // --- Builds and catch-ups ------------------------------------------------------------------------

  async build(keys) {
    const { capacity, error, commitWithin } = this.#options;
    const job = new Connection(this.#client, JOB_TIMEOUT);
    try {
      const [server, own, begin] = await this.#script(
        job, script('reserve'), 3, [error, capacity, Date.now()]);
      await this.#sleep(commitWithin); // now each row is in `keys`, or its key in the new filter
      for await (const batch of batches(typeof keys === 'function' ? keys() : keys, BATCH)) {
        const words = ['BF.BULKADD', this.#keys[2], 'NOCREATE', 'LENGTHS', pack(batch)];
        checked(await job.send(words));
      }
      await this.#trust(job, server, begin, own);
    } finally {
      job.close();
    }
    this.stats.builds++;
    this.#resumeAt = 0;
  }

  async tick() {
    await (this.#ticking ??= this.#tick().finally(() => this.#ticking = undefined));
  }

  /** Late keys, the heartbeat, and a catch-up if one is due; at the end none: the others would wait for it. */
  async #tick() {
    const { refresh, onUnavailable } = this.#options;
    const clock = Date.now(); // before the waiting keys are looked at: they are covered up to it
    const waiting = [...this.#waiting];
    let covers = onUnavailable === 'later' && !waiting.length ? 'all' : '';
    if (waiting.length) {
      const servers = [...await this.#add(waiting.map(key => Buffer.from(key, 'latin1')))];
      covers = servers.length === 1 ? servers[0] : '';
    }
    const [state, vouched, ...found] = await this.#script(this.#writer, script('tick'), 4,
      [clock, this.#id, covers, STALE, refresh, this.#ends.signal.aborted ? 0 : this.#lease]);
    if (state === 'no primary') {
      this.#token = '';
      this.#writer.leave();
    }
    if (vouched) {
      this.#known = onUnavailable === 'later';
      for (const key of waiting) this.#waiting.delete(key);
      this.stats.late += waiting.length;
    }
    if (state !== 'catch up') return;
    try {
      await this.#catchUp(...found);
    } catch (error) {
      this.stats.catchUpFailures++;
      throw error;
    }
  }

  /** Adds the keys of the rows that the filter may lack, and trusts it. */
  async #catchUp(server, since, begin) {
    const { catchUp, margin, commitWithin } = this.#options;
    const when = new Date(Math.max(since - margin - commitWithin, 0)); // an insert in flight takes commitWithin at most
    this.#log(`the guard may lack keys since ${when.toISOString()}: catching up`);
    await this.#sleep(2 * commitWithin);
    for await (const batch of batches(catchUp(when), BATCH)) {
      await this.#add(batch.map(word));
      await this.#writer.send(['SET', this.#keys[3], this.#id, 'XX', 'PX', `${this.#lease}`]);
    }
    await this.#trust(this.#writer, server, begin);
    this.stats.catchUps++;
    this.#resumeAt = 0;
  }

  /** How long others leave a catch-up to this guard, in milliseconds; 0: it makes none. */
  get #lease() {
    return this.#options.catchUp ? 2 * this.#options.commitWithin + 30_000 : 0;
  }

  /** Marks the filter as trusted, by a script that this server process alone has: a new one if `server` is ''. */
  async #trust(link, server = '', begin = '', own = '') {
    let [process, token] = await this.#script(link, lookupScript(''), 2);
    if (!server || !token) {
      token = randomUUID().replaceAll('-', '');
      [process] = await this.#script(link, lookupScript(token), 2);
    }
    return this.#script(link, script('trust'), 4, [server, begin, this.#id, own, token, process]);
  }

  #script(link, script, keys, words = []) {
    const texts = words.map(word => typeof word === 'number' ? `${word}` : word);
    return link.send(['EVAL', script, `${keys}`, ...this.#keys.slice(0, keys), ...texts]);
  }

  // --- The background ------------------------------------------------------------------------------

  #start() {
    if (this.#timer || !this.#options.catchUp || this.#ends.signal.aborted) return;
    const work = () => this.tick().catch(error => {
      if (!this.#ends.signal.aborted) this.#warn('the background of the guard failed', error);
    });
    this.#timer = setInterval(work, TICK);
    this.#timer.unref();
    work();
  }

  async close() {
    this.#ends.abort();
    clearInterval(this.#timer);
    if (this.#ticking) await new Deadline(CLOSE).within(this.#ticking).catch(() => {});
    try {
      if (this.#known) {
        await this.#tick();
        if (!this.#waiting.size) {
          await this.#writer.send(['HDEL', this.#keys[1], `late:${this.#id}`]);
        }
      }
    } catch (error) {
      this.#log(`${this.#waiting.size} keys were not added: ${error.message}`);
    } finally {
      this.#reader.close();
      this.#writer.close();
    }
  }

  async #sleep(milliseconds) {
    await sleep(milliseconds, undefined, { signal: this.#ends.signal });
  }

  /** Logs each kind at most once a second. */
  #warn(what, error) {
    if (performance.now() < this.#logAt.get(what)) return;
    this.#logAt.set(what, performance.now() + 1000);
    this.#log(`${what}: ${error?.message ?? error}`); // `catchUp` may throw anything
  }

  #log(message) {
    try {
      this.#options.log(message);
    } catch {} // an error here would end the process
  }
}

const NOT_TRUSTED = 'the filter is not trusted, or there is none';
