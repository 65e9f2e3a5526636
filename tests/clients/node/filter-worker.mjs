// Runs the sharded filter of clients/node for tests/clients/python/test_sharded_library.py, which says what
// this program reads and prints: `filter-worker.mjs NAME URL`.
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import { ShardedFilter } from '../../../clients/node/src/index.js';

// The library's own node-redis: its types of replies are compared by identity.
const { createCluster } = createRequire(new URL('../../../clients/node/', import.meta.url))('redis');
const [name, url] = process.argv.slice(2);
const cluster = createCluster({ rootNodes: [{ url }], defaults: { socket: { reconnectStrategy: () => 100 } } });
cluster.on('error', () => {});
await cluster.connect();
const filter = new ShardedFilter(cluster, name);

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...items] = line.split(' ');
  let answer = 'ok';
  try {
    if (command === 'add') await filter.add(items);
    else if (command === 'mark') await filter.mark();
    else answer = (await filter.has(items)).map(one => one === undefined ? '?' : Number(one)).join('');
  } catch (error) {
    answer = `raised ${error.message}`;
  }
  console.log(answer);
}
cluster.destroy();
