// The guard of docs/recipes/guard.md without a server: time that passes by a clock of the test.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Guard } from './guard.mjs';

/** Inserts a row while each of the two filters takes some milliseconds to answer: the rows, and what insert() returned. */
function insert(t, milliseconds) {
  const rows = new Map();
  let now = 1000;
  t.mock.method(performance, 'now', () => now);
  const client = {
    async sendCommand() {
      now += milliseconds;
      return [1];
    }
  };
  const guard = new Guard(client, { insert: async (key, value) => rows.set(key, value) });
  return { rows, done: guard.insert('row', 'value') };
}

test('an insert that took too long writes no row', async t => {
  const { rows, done } = insert(t, 1600);
  await assert.rejects(done, /took so long/);
  assert.equal(rows.size, 0);
});

test('an insert that took 2.8 of 3 seconds writes its row', async t => {
  const { rows, done } = insert(t, 1400);
  await done;
  assert.equal(rows.get('row'), 'value');
});
