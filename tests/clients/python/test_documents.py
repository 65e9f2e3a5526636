"""The Python examples of README.md and docs/*.md.

Each example must run and print the `text` block after it, if any. Only the address of the server in
`redis.Redis()`, `redis.Redis(port=...)` and `redis.Redis(db=...)` is replaced.
tests/clients/guard/run tests the programs that have a comment with a file name above them.
"""

import contextlib
import io
import os
import pathlib
import re
import unittest

import redis

ROOT = pathlib.Path(__file__).parents[3]
PORT = os.environ["REDIS_PORT"]
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\s*^```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Examples(unittest.TestCase):
    def test_each_example_runs_and_prints_what_it_says(self):
        count = 0
        for document in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for example in EXAMPLE.finditer(document.read_text()):
                before = document.read_text()[: example.start()]
                if before.endswith("-->\n"):
                    continue
                line = before.count("\n") + 1
                with self.subTest(f"{document.name}:{line}"):
                    self.run_example(*example.groups())
                count += 1
        self.assertGreaterEqual(count, 3, "examples were not found")

    def test_the_crawler_of_the_readme_loses_no_url_to_a_full_filter(self):
        readme = (ROOT / "README.md").read_text()
        (code,) = [example[1] for example in EXAMPLE.finditer(readme) if "def unseen" in example[1]]
        client = redis.Redis(port=int(PORT))
        self.addCleanup(client.close)
        client.flushall()
        client.bf().reserve("crawled", 0.000001, 2, noScale=True)
        client.bf().add("crawled", "known")  # room for one more
        names = self.execute(code.split("page =")[0], io.StringIO())
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(names["unseen"](["known", "a", "b", "c"]), ["a", "b", "c"])
            self.assertEqual(names["unseen"](["known", "a"]), [])
            self.assertEqual(names["unseen"](["b"]), ["b"])
        self.assertEqual(output.getvalue(), "not marked: non scaling filter is full\n" * 2)

    def test_the_listing_of_native_filters_survives_half_a_load_and_sees_every_database(self):
        operations = (ROOT / "docs" / "operations.md").read_text()
        (code,) = [example[1] for example in EXAMPLE.finditer(operations) if '"BF.DEBUG"' in example[1]]
        clients = {db: redis.Redis(port=int(PORT), db=db) for db in (0, 3)}
        for client in clients.values():
            self.addCleanup(client.close)
        clients[0].flushall()
        self.addCleanup(clients[0].flushall)
        clients[0].bf().add("urls", "item")
        clients[0].bf().loadchunk("half", *clients[0].bf().scandump("urls", 0))
        clients[3].bf().add("late", "item")
        theirs = (ROOT / "tests/fixtures/redisbloom-2.8-grown.dump").read_bytes()
        clients[3].restore("theirs", 0, theirs)  # not native
        clients[3].set("string", "value")
        output = io.StringIO()
        self.execute(code, output)
        expected = ["0 b'half' filter is being loaded by BF.LOADCHUNK", "0 b'urls'", "3 b'late'"]
        self.assertEqual(sorted(output.getvalue().splitlines()), expected)

    def run_example(self, code, printed):
        client = redis.Redis(port=int(PORT))
        self.addCleanup(client.close)
        client.flushall()
        for setting in client.config_get("bf?missing-key-error"):
            self.addCleanup(client.config_set, setting, "no")
        client.bf().add("urls", "what an example copies")
        output = io.StringIO()
        self.execute(code, output)
        if printed is not None:
            self.assertEqual(output.getvalue(), printed)

    def execute(self, code, output):
        """Runs code, which prints to `output`, against the server of the test; returns its names."""
        names = {"__name__": "example"}
        with contextlib.redirect_stdout(output):
            exec(re.sub(r"redis\.Redis\((port=\d+)?", f"redis.Redis(port={PORT}, ", code), names)
        return names


if __name__ == "__main__":
    unittest.main()
