// What `npm pack` makes can be installed and imported.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as library from '../src/index.js';

const root = fileURLToPath(new URL('..', import.meta.url));

test('the package has all that index.js exports, and the licences', async t => {
  const directory = mkdtempSync(join(tmpdir(), 'redis-bloom-pack-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const run = (cwd, program, ...words) => execFileSync(program, words, { cwd, encoding: 'utf8', stdio: 'pipe' });
  const packed = run(root, 'npm', 'pack', '--silent', '--pack-destination', directory).trim();
  const modules = join(directory, 'node_modules'), own = join(modules, 'redis-bloom');
  await mkdir(own, { recursive: true });
  run(directory, 'tar', '--extract', '--file', packed, '--strip-components=1', '--directory', own);
  for (const name of ['LICENSE-MIT', 'LICENSE-APACHE']) {
    assert.deepEqual(readFileSync(join(own, name)), readFileSync(join(root, '../..', name)));
  }
  for (const name of ['redis', '@redis', 'cluster-key-slot']) {
    symlinkSync(join(root, 'node_modules', name), join(modules, name));
  }
  const program = "import * as all from 'redis-bloom'; console.log(Object.keys(all).join())";
  assert.equal(run(directory, process.execPath, '--input-type=module', '--eval', program).trim(),
    Object.keys(library).join());
});
