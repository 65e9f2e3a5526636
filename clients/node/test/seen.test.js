// What was seen within a window, and claims.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createClient } from 'redis';
import { Seen } from '../src/index.js';
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

test('an item is new once', async () => {
  const seen = new Seen(client, 'plain', { capacity: 1000 });
  assert.equal(await seen.add('a'), true);
  assert.equal(await seen.add('a'), false);
  assert.deepEqual(await seen.addMany(['a', 'b', Buffer.from('b')]), [false, true, false]);
  assert.deepEqual(await seen.hasMany(['a', 'c']), [true, false]);
  assert.deepEqual([await seen.has('b'), await seen.hasMany([])], [true, []]);
});

test('a claim that fails leaves no claims', async () => {
  await server.send('SET', 'text', 'no filter');
  await assert.rejects(new Seen(client, 'text', { capacity: 1000 }).claim(['a', 'b']), /WRONGTYPE/);
  assert.deepEqual(await server.send('KEYS', 'text*'), ['text']);
});

test('an item is forgotten after the window', async () => {
  const seen = new Seen(client, 'window', { capacity: 1000, within: 400, refresh: false });
  assert.equal(await seen.add('a'), true);
  await until('the item is forgotten', async () => !(await seen.has('a')));
  assert.equal(await seen.add('a'), true);
});

test('a filter that is lost is made again with its window, and another kind is refused', async () => {
  const seen = new Seen(client, 'lost', { capacity: 1000, within: 7 * 86_400_000, refresh: false });
  for (const _ of [1, 2]) {
    await seen.add('a');
    assert.match(JSON.stringify(await server.send('BF.INFO', 'lost', 'WINDOW')), /604800000/);
    await server.send('UNLINK', 'lost');
  }
  await server.send('BF.ADD', 'lost', 'a');
  await assert.rejects(seen.add('a'), /not a filter with a window/);
});

test('of two crawlers one gets each page, until it is done or the claim has ended', async () => {
  const options = { capacity: 1000, lease: 60_000 };
  const one = new Seen(client, 'pages', options), other = new Seen(client, 'pages', options);
  const page = ['/', '/about', '/'];
  assert.deepEqual(await one.claim(page), ['/', '/about']);
  assert.deepEqual(await other.claim(page), []);
  await one.done('/');
  await one.release('/about');
  assert.deepEqual(await other.claim(page), ['/about']);
  await server.send('UNLINK', 'pages:claim:/about'); // as after the lease
  assert.deepEqual(await one.claim(page), ['/about']);
});

test('a full filter is an error', async () => {
  await server.send('BF.RESERVE', 'full', '0.001', 2, 'NONSCALING');
  await assert.rejects(new Seen(client, 'full', { capacity: 2 }).addMany(['a', 'b', 'c', 'd', 'e']), /full/);
});
