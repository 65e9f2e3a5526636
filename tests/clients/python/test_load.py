"""The programs of docs/recipes/load.md, with fewer items: each fills the filter that it says, with every item."""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import redis

ROOT = pathlib.Path(__file__).parents[3]
ITEMS = 200_001  # a last batch of one item
KEY_AND_BYTES = {
    "lines": ("users", lambda number: b"user:%d" % number),
    "numbers": ("ids", lambda number: number.to_bytes(8, "little")),
}
PROGRAMS = {  # by the client: what it loads, and how it is run
    "redis-py": ("lines", [sys.executable, "tests/clients/python/load.py"]),
    "redis-py with numpy": ("numbers", [sys.executable, "tests/clients/python/load_numpy.py"]),
    "node-redis": ("lines", ["node", "tests/clients/node/load.mjs"]),
    "redis-rs": ("lines", [os.environ["LOAD_RS"]]),
    "redigo": ("lines", [os.environ["LOAD_GO"]]),
    "Java without a library": ("numbers", ["java", "tests/clients/java/Load.java"]),
}


class Load(unittest.TestCase):
    def setUp(self):
        self.client = redis.Redis(port=int(os.environ["REDIS_PORT"]))
        self.addCleanup(self.client.close)

    def load(self, client):
        """Runs a program, which has to begin by deleting its filter; returns its filter and items, and what it printed."""
        format, command = PROGRAMS[client]
        key, to_bytes = KEY_AND_BYTES[format]
        self.client.flushall()
        self.client.bf().reserve(key, 0.5, 1)
        self.client.bf().add(key, "an older filter")
        environment = {**os.environ, "ITEMS": str(ITEMS)}
        run = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return key, [to_bytes(number) for number in range(ITEMS)], run.stdout

    def test_all_items_are_in_and_counted(self):
        for client in PROGRAMS:
            with self.subTest(client):
                key, items, printed = self.load(client)
                new = re.fullmatch(rf"\w+: (\d+) of {ITEMS} items were new\n", printed)[1]
                self.assertEqual(self.client.bf().card(key), int(new))
                self.assertEqual(self.client.bf().info(key).get("capacity"), ITEMS)
                for start in range(0, ITEMS, 10_000):
                    found = self.client.bf().mexists(key, *items[start : start + 10_000])
                    self.assertTrue(all(found), f"{found.count(0)} items are missing")


if __name__ == "__main__":
    unittest.main()
