// What was seen lately: a filter with a window, which `Seen` creates and fills; and claims, to do things once.
import { checked } from './connection.js';

export class Seen {
  #client;
  #lease;
  #words;

  constructor(client, name, { capacity, error = 0.001, within, refresh = true, lease = 600_000 }) {
    this.key = name;
    this.#client = client;
    this.#lease = `${lease}`;
    this.#words = ['CAPACITY', `${capacity}`, 'ERROR', `${error}`];
    if (within !== undefined) {
      this.#words.push('WINDOW', 'PX', `${within}`);
      if (!refresh) this.#words.push('NOREFRESH');
    }
  }

  async add(item) {
    return (await this.addMany([item]))[0];
  }

  /** With the words of the filter, a filter that is lost is recreated with its window. */
  addMany(items) {
    return this.#send('BF.INSERT', [...this.#words, 'ITEMS'], items);
  }

  async has(item) {
    return (await this.hasMany([item]))[0];
  }

  hasMany(items) {
    return this.#send('BF.MEXISTS', [], items);
  }

  async #send(command, words, items) {
    const all = [...items];
    if (!all.length) return [];
    return checked(await this.#client.sendCommand([command, this.key, ...words, ...all])).map(Boolean);
  }

  async claim(items) {
    const unique = [...new Set(items)];
    const claims = await Promise.allSettled(unique.map(item =>
      this.#client.sendCommand(['SET', this.#claimOf(item), '', 'NX', 'PX', this.#lease])));
    const mine = unique.filter((_, i) => claims[i].value != null);
    let known = mine.map(() => true); // an error ends all claims
    try {
      const failed = claims.find(claim => claim.status === 'rejected');
      if (failed) throw failed.reason;
      known = await this.hasMany(mine); // after the claims: done() adds the item before it ends the claim
    } finally {
      // What cannot be ended ends with its lease.
      await Promise.allSettled(mine.filter((_, i) => known[i]).map(item => this.release(item)));
    }
    return mine.filter((_, i) => !known[i]);
  }

  async done(item) {
    await this.add(item);
    await this.release(item);
  }

  async release(item) {
    await this.#client.sendCommand(['UNLINK', this.#claimOf(item)]);
  }

  #claimOf(item) {
    return Buffer.concat([Buffer.from(`${this.key}:claim:`), Buffer.from(item)]);
  }
}
