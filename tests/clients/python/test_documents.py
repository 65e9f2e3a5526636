"""The Python examples of README.md and all pages of docs.

Each example must run and print the `text` block after it, if any; a second run on the same server,
and a run with the oldest redis-py, must do the same. Only the address of the server in
`redis.Redis()`, `redis.Redis(port=...)` and `redis.Redis(db=...)` is replaced. A program in any
language below a comment with a file name is that file, word for word; tests of its own run it.
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import unittest

import redis

import test_guard
import test_load

ROOT = pathlib.Path(__file__).parents[3]
PORT = os.environ["REDIS_PORT"]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
SHOWN = re.compile(r"^<!-- (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Examples(unittest.TestCase):
    def test_each_example_runs_and_prints_what_it_says(self):
        count = 0
        for document in DOCUMENTS:
            for example in EXAMPLE.finditer(document.read_text()):
                before = document.read_text()[: example.start()]
                if before.endswith("-->\n"):
                    continue
                line = before.count("\n") + 1
                with self.subTest(f"{document.name}:{line}"):
                    self.run_example(*example.groups())
                count += 1
        self.assertGreaterEqual(count, 3, "examples were not found")

    def test_the_programs_shown_are_the_files_that_are_tested(self):
        shown = [program for document in DOCUMENTS for program in SHOWN.findall(document.read_text())]
        for file, text in shown:
            with self.subTest(file):
                self.assertEqual(text, (ROOT / file).read_text())
        self.assertGreaterEqual(len(shown), 3, "programs were not found")

    def test_the_page_of_clients_names_what_an_old_redis_py_lacks(self):
        clients = (ROOT / "docs/guide/clients.md").read_text()
        self.assertIn("has no `bf().reserve` (`bf().create` is the same) and no `bf().card`", clients)
        code = "import redis\nprint(*set(dir(redis.Redis().bf())) & {'reserve', 'create', 'card'}, redis.__version__)"
        command = [os.environ["PYTHON_REDIS_4"], "-c", code]
        self.assertEqual(subprocess.check_output(command, text=True).split(), ["create", "4.3.4"])

    def test_the_table_of_clients_says_what_is_tested(self):
        page = (ROOT / "docs/internals/clients.md").read_text()
        guards = {*test_guard.Libraries.COMMANDS, *test_guard.Examples.COMMANDS}
        rows = re.findall(r"^\| \w+ \| ([^|]+) \| ([^|]+) \| (yes|) ?\| (yes|) ?\| [^|]*\|$", page, re.MULTILINE)
        self.assertEqual({client for client, _, tested, _ in rows if tested}, guards)
        self.assertEqual({client for client, _, _, tested in rows if tested}, set(test_load.PROGRAMS))
        pinned = (ROOT / "tests/clients/node/package.json").read_text() + "".join(
            re.findall(r'^name = "redis"\nversion = .*', (ROOT / "Cargo.lock").read_text(), re.MULTILINE)
        )
        for requirements in (ROOT / "tests/clients/python").glob("requirements*.txt"):
            pinned += requirements.read_text()
        for client, version, _, _ in rows:
            for number in re.findall(r"\d+\.\d+\.\d+", version):
                if "`php-redis`" in version or "`golang-" in version:
                    continue  # that of the machine
                self.assertRegex(pinned, rf"[=@\"]{re.escape(number)}\b", client)

    def run_example(self, code, printed):
        client = redis.Redis(port=int(PORT))
        self.addCleanup(client.close)
        client.flushall()
        for setting in client.config_get("bf?missing-key-error"):
            self.addCleanup(client.config_set, setting, "no")
        client.bf().add("urls", "what an example copies")
        for _ in range(2):
            output = io.StringIO()
            self.execute(code, output)
            if printed is not None:
                self.assertEqual(output.getvalue(), printed)
        command = [os.environ["PYTHON_REDIS_4"], "-c", local(code)]
        output = subprocess.check_output(command, text=True)
        if printed is not None:
            self.assertEqual(output, printed)

    def execute(self, code, output):
        """Runs code, which prints to `output`, against the server of the test; returns its names."""
        names = {"__name__": "example"}
        with contextlib.redirect_stdout(output):
            exec(local(code), names)
        return names


def local(code):
    """An example that connects to the server of the test."""
    return re.sub(r"redis\.Redis\((port=\d+)?", f"redis.Redis(port={PORT}, ", code)


if __name__ == "__main__":
    unittest.main()
