// Packed batches: all items of a command in one string, all answers in a string of bits.
import { RESP_TYPES } from 'redis';
import { BloomError, batches } from './connection.js';

const BATCH = 10_000; // a multiple of 8, so that the bits of batches can be put one behind the other
const BINARY = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };

/** The answers of a batch: booleans in the order of the items. */
export class Answers {
  constructor(length = 0, bits = Buffer.alloc(0)) {
    this.length = length;
    this.bits = bits;
  }

  at(index) {
    const i = index < 0 ? index + this.length : index;
    if (i < 0 || i >= this.length) return undefined;
    return (this.bits[i >> 3] & (0x80 >> (i & 7))) !== 0;
  }

  * [Symbol.iterator]() {
    for (let i = 0; i < this.length; i++) yield this.at(i);
  }

  /** How many answers are yes. */
  count() {
    let count = 0;
    for (let byte of this.bits) for (; byte; byte &= byte - 1) count++;
    return count;
  }
}

/** The server could not add all items; `answers` are for those that it added. */
export class PartlyDone extends BloomError {
  name = 'PartlyDone';

  constructor(cause, answers) {
    super(`${answers.length} items were added, then: ${cause.message}`, { cause });
    this.answers = answers;
  }
}

/** Items with their lengths: the format LENGTHS. */
export function pack(items) {
  const parts = [];
  for (const item of items) {
    const data = Buffer.from(item), length = [];
    let rest = data.length;
    for (; rest > 127; rest >>>= 7) length.push(rest & 127 | 128);
    length.push(rest);
    parts.push(Buffer.from(length), data);
  }
  return Buffer.concat(parts);
}

/** The words of each command: for a typed array its elements as they lie in memory. */
async function* packed(items) {
  if (typeof items === 'string' || Buffer.isBuffer(items)) {
    throw new TypeError('items are a collection, not one string');
  }
  if (!ArrayBuffer.isView(items)) {
    for await (const batch of batches(items, BATCH)) yield ['LENGTHS', pack(batch)];
    return;
  }
  const width = items.BYTES_PER_ELEMENT;
  if (!width) throw new TypeError('a DataView has no elements');
  for (let start = 0; start < items.length; start += BATCH) {
    const length = width * Math.min(BATCH, items.length - start);
    yield ['WIDTH', `${width}`, Buffer.from(items.buffer, items.byteOffset + start * width, length)];
  }
}

async function send(client, command, key, options, items) {
  const parts = [];
  let length = 0;
  for await (const words of packed(items)) {
    const [done, bits, error] = await client.sendCommand(
      [command, key, ...options, ...words], BINARY);
    length += done;
    parts.push(bits);
    if (error) throw new PartlyDone(error, new Answers(length, Buffer.concat(parts)));
  }
  return new Answers(length, Buffer.concat(parts));
}

export function add(client, key, items, ...options) {
  return send(client, 'BF.BULKADD', key, options.map(String), items);
}

export function exists(client, key, items) {
  return send(client, 'BF.BULKEXISTS', key, [], items);
}
