// Servers that the tests of the libraries kill, pause and start again.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFile, mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';

/** Waits until a function returns something. */
export async function until(what, wanted) {
  for (const end = Date.now() + 60_000; Date.now() < end; await sleep(20)) {
    const found = await wanted();
    if (found) return found;
  }
  throw new Error(`after a minute still not: ${what}`);
}

async function freePort() {
  const listener = createServer().listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const { port } = listener.address();
  listener.close();
  return port < 50_000 ? port : port - 20_000; // a cluster's bus has the port + 10,000
}

export class Server {
  #process;

  /** A server in a directory of its own; `words` are more words of its command line. */
  static async start(...words) {
    const server = new Server();
    server.words = words;
    server.directory = await mkdtemp(join(tmpdir(), 'redis-bloom-'));
    server.port = await freePort();
    server.url = `redis://127.0.0.1:${server.port}`;
    await server.run();
    return server;
  }

  async run() {
    const words = ['--port', this.port, '--bind', '127.0.0.1', '--save', '', '--dir', this.directory,
      '--loadmodule', resolve(process.env.REDIS_BLOOM_SO), ...this.words];
    const program = process.env.REDIS_SERVER ?? 'redis-server';
    this.#process = spawn(program, words.map(String), { stdio: 'ignore' });
    await until('the server answers', () => this.send('PING').catch(() => {}));
  }

  signal(name) {
    this.#process.kill(name);
  }

  async kill() {
    const ended = once(this.#process, 'exit');
    this.signal('SIGKILL');
    await ended;
  }

  /** The reply to a command, over a connection of its own. */
  async send(...words) {
    const client = createClient({
      url: this.url, disableOfflineQueue: true, socket: { reconnectStrategy: false, connectTimeout: 5000 }
    });
    client.on('error', () => {});
    await client.connect();
    try {
      return await client.sendCommand(words.map(String));
    } finally {
      client.destroy();
    }
  }

  /** Keeps the data of now under a name. */
  async snapshot(name = 'kept') {
    await this.send('SAVE');
    await copyFile(join(this.directory, 'dump.rdb'), join(this.directory, name));
  }

  /** Kills the server, and starts it with a snapshot, or with no data. */
  async restart(name) {
    await this.kill();
    const file = join(this.directory, 'dump.rdb');
    if (name) await copyFile(join(this.directory, name), file);
    else await rm(file, { force: true });
    await this.run();
  }

  async stop() {
    await this.kill();
    await rm(this.directory, { recursive: true });
  }
}

/** Passes bytes between clients and a server, until its connections are to seem dead. */
export class Proxy {
  #open = new Set();
  #listener;

  static async start(server) {
    const proxy = new Proxy();
    proxy.#listener = createServer(near => {
      const far = connect(server.port, '127.0.0.1');
      for (const [from, to] of [[near, far], [far, near]]) {
        from.on('error', () => to.destroy()).on('close', () => to.destroy()).pipe(to);
        proxy.#open.add(from);
      }
    }).listen(0, '127.0.0.1');
    await once(proxy.#listener, 'listening');
    proxy.url = `redis://127.0.0.1:${proxy.#listener.address().port}`;
    return proxy;
  }

  /** The connections of now pass nothing more, and are not closed; new ones work. */
  freeze() {
    for (const end of this.#open) end.unpipe().resume();
  }

  close() {
    for (const end of this.#open) end.destroy();
    this.#listener.close();
  }
}
