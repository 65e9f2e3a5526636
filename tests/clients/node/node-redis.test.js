// node-redis: every method of @redis/bloom, in RESP2, in RESP3 and in the default protocol of the
// client, with the two newest major versions of node-redis. `make test-clients` starts the server
// and puts its address into REDIS_URL.
'use strict';

const assert = require('node:assert/strict');
const { after, before, beforeEach, describe, it } = require('node:test');

const FULL = 'ERR non scaling filter is full';
let keys = 0;

for (const name of ['redis', 'redis5']) {
  const { version, engines } = require(`${name}/package.json`);
  // node-redis 5 states the engine only in the package of its client.
  const needs = Number(/\d+/.exec(engines?.node ?? '18')[0]);
  const has = Number(process.versions.node.split('.')[0]);
  const skip = has < needs ? `node-redis ${version} needs Node.js ${needs}, this is ${process.versions.node}` : false;
  for (const RESP of [undefined, 2, 3]) {
    const protocol = RESP === undefined ? 'its default protocol' : `RESP${RESP}`;
    describe(`node-redis ${version} in ${protocol}`, { skip }, () => {
      // The protocol on the wire is RESP3 if requested, or by default from version 6 on.
      suite(name, RESP, (RESP ?? (name === 'redis5' ? 2 : 3)) === 3);
    });
  }
}

function suite(name, RESP, resp3) {
  let redis, client, bf, key;

  before(async () => {
    redis = require(name);
    client = redis.createClient({ url: process.env.REDIS_URL, RESP });
    await client.connect();
    bf = client.bf;
  });
  after(() => client?.close());
  beforeEach(() => { key = `node-redis:${keys++}`; });

  const refuses = (promise, message) => assert.rejects(promise, error => {
    assert.ok(error instanceof redis.ErrorReply, `${error.constructor.name} is no ErrorReply`);
    assert.equal(error.message, message);
    return true;
  });
  const info = async (of = key) => ({ ...await bf.info(of) });

  it('reserves a filter as asked', async () => {
    assert.equal(await bf.reserve(key, 0.001, 1000, { EXPANSION: 4 }), 'OK');
    const { Size: size, ...rest } = await info();
    assert.deepEqual(rest, {
      Capacity: 1000, 'Number of filters': 1, 'Number of items inserted': 0, 'Expansion rate': 4
    });
    assert.ok(Number.isInteger(size) && size > 1000, `${size} bytes`);
    await refuses(bf.reserve(key, 0.001, 1000), 'ERR item exists');
  });

  it('takes an error rate with an exponent, and one that is none', async () => {
    assert.equal(await bf.reserve(key, 1e-7, 10), 'OK');
    await refuses(bf.reserve(`${key}:2`, 1.5, 10), 'ERR error rate must be in the range (0.000000, 1.000000)');
  });

  it('has no expansion where the filter does not scale', async () => {
    assert.equal(await bf.reserve(key, 0.01, 10, { NONSCALING: true }), 'OK');
    assert.equal((await info())['Expansion rate'], null);
    await refuses(
      bf.reserve(`${key}:2`, 0.01, 10, { EXPANSION: 2, NONSCALING: true }), 'ERR Nonscaling filters cannot expand'
    );
  });

  it('says of each addition whether it was new', async () => {
    assert.equal(await bf.add(key, 'a'), true);
    assert.equal(await bf.add(key, 'a'), false);
    assert.deepEqual(await bf.mAdd(key, ['a', 'b', 'b']), [false, true, false]);
    assert.deepEqual(await bf.insert(key, ['b', 'c'], { NOCREATE: true }), [false, true]);
    assert.equal(await bf.card(key), 3);
  });

  it('inserts with every option', async () => {
    const options = { CAPACITY: 500, ERROR: 1e-5, EXPANSION: 3 };
    assert.deepEqual(await bf.insert(key, ['a', 'b'], options), [true, true]);
    const { Capacity, 'Expansion rate': expansion } = await info();
    assert.deepEqual({ Capacity, expansion }, { Capacity: 500, expansion: 3 });
    assert.deepEqual(await bf.insert(`${key}:2`, 'a', { NONSCALING: true }), [true]);
    assert.equal((await info(`${key}:2`))['Expansion rate'], null);
    await refuses(bf.insert(`${key}:3`, 'a', { NOCREATE: true }), 'ERR not found');
  });

  it('finds what was added, and nothing else', async () => {
    await bf.mAdd(key, ['a', 'b']);
    assert.equal(await bf.exists(key, 'a'), true);
    assert.equal(await bf.exists(key, 'z'), false);
    assert.deepEqual(await bf.mExists(key, ['a', 'z', 'b']), [true, false, true]);
  });

  it('finds nothing in a filter that is missing', async () => {
    assert.equal(await bf.exists(key, 'a'), false);
    assert.deepEqual(await bf.mExists(key, ['a', 'b']), [false, false]);
    assert.equal(await bf.card(key), 0);
    await refuses(bf.info(key), 'ERR not found');
    await refuses(bf.scanDump(key, 0), 'ERR not found');
  });

  it('takes any bytes as an item', async () => {
    const items = ['grüße', '', '\r\n\0', 'x'.repeat(100_000), Buffer.from([0, 255, 13, 10])];
    assert.deepEqual(await bf.mAdd(key, items), items.map(() => true));
    assert.deepEqual(await bf.mExists(key, items), items.map(() => true));
  });

  it('ends the answers with the error where a filter is full', async () => {
    await bf.reserve(key, 1e-9, 2, { NONSCALING: true });
    const answers = await bf.mAdd(key, ['a', 'b', 'c', 'd']);
    assert.deepEqual(answers.slice(0, 2), [true, true]);
    assert.equal(answers.length, 3);
    // In RESP2 this client turns every reply that is not 1 into false.
    if (resp3) {
      assert.ok(answers[2] instanceof redis.ErrorReply);
      assert.equal(answers[2].message, FULL);
    } else {
      assert.equal(answers[2], false);
    }
    await refuses(bf.add(key, 'c'), FULL);
    assert.equal(await bf.add(key, 'a'), false);
  });

  it('stays in step in a pipeline', async () => {
    await bf.reserve(key, 1e-9, 1, { NONSCALING: true });
    const [added, exists, echo] = await Promise.all([
      bf.mAdd(key, ['a', 'b', 'c']), bf.exists(key, 'a'), client.echo('in step')
    ]);
    assert.equal(added.length, 2);
    assert.equal(exists, true);
    assert.equal(echo, 'in step');
  });

  it('works in a transaction', async () => {
    const replies = await client.multi().bf.add(key, 'a').bf.exists(key, 'a').bf.card(key).exec();
    assert.deepEqual(replies, [true, true, 1]);
  });

  it('shows the info as a map too', async () => {
    await bf.add(key, 'a');
    const map = await client.withTypeMapping({ [redis.RESP_TYPES.MAP]: Map }).bf.info(key);
    assert.ok(map instanceof Map);
    assert.equal(map.get('Number of items inserted'), 1);
    assert.equal(map.size, 5);
  });

  it('copies a filter chunk by chunk', async () => {
    const items = Array.from({ length: 1000 }, (_, number) => `item-${number}`);
    await bf.mAdd(key, items);
    // Chunks are binary: the default type of this client, a string, would corrupt them.
    const binary = client.withTypeMapping({ [redis.RESP_TYPES.BLOB_STRING]: Buffer }).bf;
    const copy = `${key}:2`;
    let chunks = 0;
    let { iterator, chunk } = await binary.scanDump(key, 0);
    for (; iterator !== 0; ({ iterator, chunk } = await binary.scanDump(key, iterator))) {
      assert.ok(Number.isSafeInteger(iterator) && Buffer.isBuffer(chunk));
      assert.equal(await bf.loadChunk(copy, iterator, chunk), 'OK');
      chunks += 1;
    }
    assert.deepEqual(chunk, Buffer.alloc(0));
    assert.ok(chunks > 1);
    assert.deepEqual(await bf.mExists(copy, items), items.map(() => true));
    assert.deepEqual(await info(copy), await info());
  });

  it('shows the layers, for which it has no method', async () => {
    await bf.mAdd(key, ['a', 'b']);
    const [first, layer] = await client.sendCommand(['BF.DEBUG', key]);
    assert.equal(first, 'size:2');
    assert.match(layer, /^bytes:\d+ bits:\d+ hashes:\d+ hashwidth:64 capacity:100 size:2 /);
  });

  it('refuses a key of another type', async () => {
    await client.set(key, 'text');
    const wrong = 'WRONGTYPE Operation against a key holding the wrong kind of value';
    for (const promise of [
      bf.add(key, 'a'), bf.mAdd(key, ['a']), bf.insert(key, 'a'), bf.exists(key, 'a'), bf.mExists(key, ['a']),
      bf.card(key), bf.info(key), bf.reserve(key, 0.01, 10), bf.scanDump(key, 0), bf.loadChunk(key, 1, '')
    ]) {
      await refuses(promise, wrong);
    }
  });
}
