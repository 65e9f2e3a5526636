// Compiled by `npm run types`, and never run: the declarations fit the use of README.md, and refuse errors.
import { createClient, createCluster } from 'redis';
import { BloomError, Guard, Seen, ShardedFilter, bulk, type Stats } from 'redis-bloom';

const client = createClient();
const rowsSince = async (since: Date): Promise<string[]> => [since.toISOString()];
const guard = new Guard(client, 'users', { capacity: 1_000_000, error: 0.001, catchUp: rowsSince });

async function* stream(): AsyncGenerator<string> {
  yield 'user:1';
}

export async function use(): Promise<Stats> {
  await guard.build(stream());
  await guard.build(() => ['user:1', Buffer.from('user:2')]);
  await guard.insert('user:3', 'user:4');
  const row: { name: string } | undefined = await guard.lookup('user:1', async key => ({ name: key }));
  const rows: string[] = await guard.lookupMany(new Set(['user:1']), keys => keys.map(key => key + row?.name));
  const added: bulk.Answers = await bulk.add(client, 'users', rows, 'NOCREATE');
  const known: boolean[] = [...await bulk.exists(client, 'ids', BigUint64Array.of(1n))];
  // @ts-expect-error a number is no collection of items
  const answers = bulk.add(client, 'users', 5);
  // @ts-expect-error there is no such way
  new Guard(client, 'users', { capacity: 1, onUnavailable: 'never' });
  // @ts-expect-error a guard needs a capacity
  new Guard(client, 'users', {});
  await answers.catch((error: unknown) => error instanceof bulk.PartlyDone && error.answers.count());
  console.log(added.count(), known, new BloomError('').message);
  const seen = new Seen(client, 'posts', { capacity: 1000, within: 7 * 86_400_000 });
  const mine: string[] = await seen.add('alice:1') ? await seen.claim(['/']) : [];
  for (const page of mine) await seen.done(page);
  const sharded = new ShardedFilter(createCluster({ rootNodes: [] }), 'urls', { timeout: 200 });
  await sharded.add(mine);
  const present: (boolean | undefined)[] = await sharded.has(mine);
  console.log(present);
  await guard.close();
  return guard.stats;
}
