// Bloom filters of redis-bloom in applications, with node-redis. README.md and index.d.ts describe it.
export { Guard } from './guard.js';
export { BloomError } from './connection.js';
export * as bulk from './bulk.js';
export { Seen } from './seen.js';
export { ShardedFilter } from './sharded.js';
