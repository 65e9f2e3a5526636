// Sharded filters: rebuilds, lost shards, damaged descriptors, a cluster.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createClient, createCluster } from 'redis';
import { createCluster as createCluster5 } from 'redis5';
import { ShardedFilter } from '../src/index.js';
import { shardOf } from '../src/sharded.js';
import { Server, until } from './server.js';

let server, client;
before(async () => {
  server = await Server.start();
  client = await createClient({ url: server.url }).connect();
});
after(async () => {
  client.destroy();
  await server.stop();
});

const run = words => client.sendCommand(words.split(' '));
const items = Array.from({ length: 300 }, (_, i) => `item:${i}`);

/** Makes the shards of one generation; returns their fields of the descriptor. */
async function reserve(name, shards, generation, prefix = '') {
  let fields = `${prefix}shards ${shards} ${prefix}generation ${generation} `
    + `${prefix}error 0.000001 ${prefix}capacity 1000`;
  for (let i = 0; i < shards; i++) {
    const key = `{${name}:${i}}:${generation}`;
    await run(`BF.RESERVE ${key} 0.000001 1000 SHARD ${i} ${shards}`);
    fields += ` ${prefix}${i} ${key}`;
  }
  return fields;
}

/** A filter with items, complete, whose descriptor is read at every use but for `poll` seconds. */
async function filled(name, poll = 10) {
  await run(`HSET ${name} rule crc32 state ready poll ${poll} ${await reserve(name, 4, 1)}`);
  const filter = new ShardedFilter(client, name, { timeout: 5000, addTimeout: 5000 });
  await filter.add(items);
  await filter.mark();
  return filter;
}

test('the rule has the vectors of docs/reference/sharding.md', () => {
  for (const [item, ...wanted] of [
    ['', 0, 0, 0, 0], ['a', 1, 7, 116, 909], ['123456789', 1, 6, 101, 796], ['user:1', 0, 3, 61, 482],
    ['münchen', 0, 2, 34, 273], [Buffer.of(0, 255), 0, 3, 54, 425]
  ]) {
    assert.deepEqual([2, 8, 128, 1000].map(shards => shardOf(item, shards)), wanted, String(item));
  }
});

test('items are found, and others are not', async () => {
  const filter = await filled('plain');
  assert.deepEqual(await filter.has(items), items.map(() => true));
  assert.deepEqual(await filter.has(['nobody', 'item:1', Buffer.from('item:2')]), [false, true, true]);
  assert.equal(filter.failures, 0);
});

test('without its mark the no of a shard is not believed', async () => {
  const filter = await filled('lost');
  const lost = items.filter(item => shardOf(item, 4) === 2);
  await run('UNLINK {lost:2}:1');
  assert.deepEqual(await filter.has(items), items.map(item => lost.includes(item) ? undefined : true));
  assert.ok(filter.failures > 0);
  await assert.rejects(filter.add(lost), /not found/);
  await run('BF.RESERVE {lost:2}:1 0.000001 1000 SHARD 2 4');
  await filter.add(lost);
  await filter.mark();
  const other = new ShardedFilter(client, 'lost', { timeout: 5000 });
  assert.deepEqual(await other.has([...items, 'nobody']), [...items.map(() => true), false]);
});

test('a rebuild is followed, and no item is missed', async () => {
  const filter = await filled('rebuilt', 1);
  await run(`HSET rebuilt ${await reserve('rebuilt', 3, 2, 'next.')}`);
  const writer = new ShardedFilter(client, 'rebuilt', { addTimeout: 5000 }); // it knows both generations
  await writer.add([...items, 'during']);
  assert.deepEqual(await filter.has(['during']), [true]);
  const next = [0, 1, 2].map(i => `${i} {rebuilt:${i}}:2`).join(' ');
  await run(`HSET rebuilt shards 3 generation 2 ${next} next.shards 4 next.generation 1 `
    + [0, 1, 2, 3].map(i => `next.${i} {rebuilt:${i}}:1`).join(' '));
  await run('HDEL rebuilt 3');
  await writer.mark();
  for (const i of [0, 1, 2, 3]) {
    await run(`UNLINK {rebuilt:${i}}:1`);
    await client.set(`{rebuilt:${i}}:1`, 'moved to 2');
  }
  assert.deepEqual(await filter.has([...items, 'during', 'nobody']), [...items.map(() => true), true, false]);
  await filter.add(['after']); // the old shards are gone
  assert.deepEqual(await filter.has(['after']), [true]);
  assert.equal(filter.failures, 0);
});

test('a base has the older items', async () => {
  await run('BF.RESERVE {based}:old 0.000001 1000');
  await run('BF.MADD {based}:old older');
  const filter = await filled('based');
  await run('HSET based base {based}:old');
  const other = new ShardedFilter(client, 'based', { timeout: 5000 });
  assert.deepEqual(await other.has(['older', 'item:1', 'nobody']), [true, true, undefined]);
  await client.sendCommand(['BF.ADD', '{based}:old', 'filter: complete']);
  const third = new ShardedFilter(client, 'based', { timeout: 5000 });
  assert.deepEqual(await third.has(['older', 'item:1', 'nobody']), [true, true, false]);
  assert.equal(filter.failures, 0);
});

test('a descriptor that cannot be used gives no answer, and takes no additions', async () => {
  for (const [change, adds] of [
    ['HSET damaged rule other', /no filter/], ['HSET damaged state creating', /no filter/],
    ['HSET damaged shards 0', /damaged/], ['HDEL damaged 3', /damaged/], ['HDEL damaged error', /damaged/],
    ['UNLINK damaged', /no filter/]
  ]) {
    await run('FLUSHALL');
    await filled('damaged');
    await run(change);
    const filter = new ShardedFilter(client, 'damaged', { timeout: 5000 });
    assert.deepEqual(await filter.has(['item:1', 'nobody']), [undefined, undefined], change);
    await assert.rejects(filter.add(['new']), adds, change);
    assert.equal(filter.failures, 1);
  }
});

test('a next generation that cannot be read takes no additions, and queries go on', async () => {
  await filled('half');
  await run('HSET half next.shards 2');
  const filter = new ShardedFilter(client, 'half', { timeout: 5000 });
  assert.deepEqual(await filter.has(['item:1', 'nobody']), [true, false]);
  await assert.rejects(filter.add(['new']), /next generation/);
});

for (const [version, create] of [[6, createCluster], [5, createCluster5]]) {
  test(`a cluster client of node-redis ${version} sends each shard to its node`, async t => {
    const nodes = [];
    for (let i = 0; i < 2; i++) {
      nodes.push(await Server.start('--cluster-enabled', 'yes'));
      t.after(() => nodes[i].stop());
    }
    for (const [i, node] of nodes.entries()) {
      await node.send('CLUSTER', 'SET-CONFIG-EPOCH', i + 1);
      await node.send('CLUSTER', 'ADDSLOTSRANGE', i * 8192, i * 8192 + 8191);
    }
    await nodes[0].send('CLUSTER', 'MEET', '127.0.0.1', nodes[1].port);
    for (const node of nodes) {
      await until('the cluster is up', async () =>
        String(await node.send('CLUSTER', 'INFO')).includes('cluster_state:ok'));
    }
    // The keys of docs/reference/sharding.md for `urls` in 2 shards: one in each half of the slots.
    for (const [i, key] of ['{urls:5968}:1', '{urls:1796}:1'].entries()) {
      await nodes[i].send('BF.RESERVE', key, '0.000001', 1000, 'SHARD', i, 2);
    }
    const cluster = await create({ rootNodes: [{ url: nodes[0].url }] }).connect();
    t.after(() => cluster.destroy());
    await cluster.sendCommand('urls', false, ('HSET urls rule crc32 shards 2 generation 1 error 0.000001 '
      + 'capacity 1000 0 {urls:5968}:1 1 {urls:1796}:1 state ready').split(' '));
    const filter = new ShardedFilter(cluster, 'urls', { timeout: 5000, addTimeout: 5000 });
    await filter.add(items);
    await filter.mark();
    assert.deepEqual(await filter.has([...items, 'nobody']), [...items.map(() => true), false]);
    assert.equal(filter.failures, 0);
  });
}
