// Connections of this library: the settings of the caller's client, with timeouts of their own.

/** An error of this library, not of the server. */
export class BloomError extends Error {
  name = 'BloomError';
}

/**
 * Rejects what takes longer than some milliseconds: node-redis waits for a reply without end. All share one timer,
 * because one each costs a tenth of a query.
 */
export class Deadline {
  #milliseconds;
  #waiting = new Set(); // in the order of their ends
  #timer;

  constructor(milliseconds) {
    this.#milliseconds = milliseconds;
  }

  within(reply) {
    return new Promise((resolve, reject) => {
      const one = { reject, end: performance.now() + this.#milliseconds };
      this.#waiting.add(one);
      if (!this.#timer) this.#check();
      reply.then(
        answer => { this.#waiting.delete(one); resolve(answer); },
        error => { this.#waiting.delete(one); reject(error); }
      );
    });
  }

  #check() {
    for (const one of this.#waiting) {
      const rest = one.end - performance.now();
      if (rest > 0) {
        this.#timer = setTimeout(() => this.#check(), rest).unref();
        return;
      }
      this.#waiting.delete(one);
      one.reject(new BloomError(`no reply within ${this.#milliseconds} ms`));
    }
    this.#timer = undefined;
  }
}

/** The elements of a reply. node-redis does not throw an error that is inside an array: this does. */
export function checked(answers) {
  const last = answers.at(-1);
  if (last instanceof Error) throw last;
  return answers;
}

/** Batches of an iterable, an asynchronous one too. */
export async function* batches(items, size) {
  let batch = [];
  for await (const item of await items) {
    batch.push(item);
    if (batch.length < size) continue;
    yield batch;
    batch = [];
  }
  if (batch.length) yield batch;
}

/** A connection that answers or fails within `timeout` milliseconds, and connects again in the background. */
export class Connection {
  #client;
  #deadline;
  #opening;

  constructor(client, timeout) {
    this.#deadline = new Deadline(timeout);
    this.#client = client.duplicate({
      commandOptions: {},
      disableOfflineQueue: true, // fail now, not when there is a connection again
      // A connection without traffic is replaced. Pings make traffic on an idle connection.
      pingInterval: Math.max(300, timeout / 3),
      socket: {
        ...client.options?.socket,
        connectTimeout: timeout,
        socketTimeout: Math.max(600, 2 * timeout),
        reconnectStrategy: () => 100
      }
    });
    this.#client.on('error', () => {}); // without it Node.js exits; each command fails, too
  }

  /** The reply to a command. */
  async send(words) {
    if (!this.#client.isReady) {
      if (!this.#opening) (this.#opening = this.#client.connect()).catch(() => {});
      await this.#deadline.within(this.#opening);
    }
    try {
      return await this.#deadline.within(this.#client.sendCommand(words));
    } catch (error) {
      // The server is no primary any more, or it seems dead although commands are sent.
      if (error instanceof BloomError || error.message.startsWith('READONLY')) this.leave();
      throw error;
    }
  }

  /** The next command has a new connection, which may reach another server. */
  leave() {
    this.close();
    this.#opening = undefined;
  }

  close() {
    if (this.#client.isOpen) this.#client.destroy();
  }
}
