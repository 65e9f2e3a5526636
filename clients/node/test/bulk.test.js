// Packed batches, with both versions of node-redis and both protocols.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createClient } from 'redis';
import { createClient as createClient5 } from 'redis5';
import { bulk } from '../src/index.js';
import { Server } from './server.js';

let server;
before(async () => server = await Server.start());
after(() => server.stop());

const clients = [[createClient, 2], [createClient, 3], [createClient5, 2], [createClient5, 3]];
for (const [n, [create, RESP]] of clients.entries()) {
  const name = `node-redis ${n < 2 ? 6 : 5}, RESP${RESP}`;

  async function connected(t) {
    const client = await create({ url: server.url, RESP }).connect();
    t.after(() => client.destroy());
    return client;
  }

  test(`${name}: items of every kind of collection are added, and found`, async t => {
    const client = await connected(t);
    const key = `kinds:${n}`;
    await server.send('BF.RESERVE', key, '0.000001', 200_000);
    async function* stream() {
      for (let i = 0; i < 25_001; i++) yield `user:${i}`;
    }
    assert.equal((await bulk.add(client, key, stream(), 'NOCREATE')).length, 25_001);
    const bytes = [Buffer.from('user:0'), Buffer.from('münchen'), '', 'x'.repeat(300)];
    assert.deepEqual([...await bulk.add(client, key, bytes)], [false, true, true, true]);
    const found = await bulk.exists(client, key, ['user:25000', 'nobody', 'münchen', '', 'x'.repeat(300)]);
    assert.deepEqual([...found], [true, false, true, true, true]);
    assert.deepEqual([found.at(-1), found.at(1), found.at(5), found.count()], [true, false, undefined, 4]);
    const ids = BigUint64Array.from({ length: 20_001 }, (_, i) => BigInt(i));
    assert.ok((await bulk.add(client, key, ids)).count() >= 20_000);
    const part = await bulk.exists(client, key, ids.subarray(19_990));
    assert.deepEqual([part.length, part.count()], [11, 11]);
    assert.equal((await bulk.exists(client, key, [])).length, 0);
  });

  test(`${name}: a full filter says how many items it took`, async t => {
    const client = await connected(t);
    const key = `full:${n}`;
    await server.send('BF.RESERVE', key, '0.000001', 1000, 'NONSCALING');
    const items = Array.from({ length: 1200 }, (_, i) => `${i}`);
    await assert.rejects(bulk.add(client, key, items), error => {
      assert.ok(error instanceof bulk.PartlyDone);
      assert.match(error.message, /full/);
      // 1,000 new items, and with them few that were found by chance
      assert.ok(error.answers.length >= 1000 && error.answers.length < 1010, error.message);
      return true;
    });
    await assert.rejects(bulk.add(client, `none:${n}`, items, 'NOCREATE'), /not found/);
  });
}

test('one string is no collection of items', async () => {
  await assert.rejects(bulk.add(createClient(), 'key', 'abc'), TypeError);
  await assert.rejects(bulk.exists(createClient(), 'key', Buffer.from('abc')), TypeError);
});
