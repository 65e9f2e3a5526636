"""The programs of docs/guide/load.md, and the examples: each fills the filter that it says, with every item, or fails.

They log in with a name and a password.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest

import redis

from server import Server, until

ROOT = pathlib.Path(__file__).parents[3]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}  # redis-py 4 has no library installed
ITEMS = 200_001  # a last batch of one item
LONG = 20_000_000  # items for which each program needs seconds
NAMES = "--user loader on >secret ~* +@all --user default on nopass ~* &* +@all -bf.bulkadd".split()
KEY_AND_BYTES = {
    "lines": ("users", lambda number: b"user:%d" % number),
    "numbers": ("ids", lambda number: number.to_bytes(8, "little")),
}
PROGRAMS = {  # by the client: what it loads, and how it is run
    "redis-py": ("lines", [sys.executable, "tests/clients/python/load.py"]),
    "redis-py 4.3.4": ("lines", [os.environ["PYTHON_REDIS_4"], "tests/clients/python/load.py"]),
    "redis-py with numpy": ("numbers", [sys.executable, "tests/clients/python/load_numpy.py"]),
    "redis-py 4.3.4 with numpy": ("numbers", [os.environ["PYTHON_REDIS_4"], "tests/clients/python/load_numpy.py"]),
    "node-redis": ("lines", ["node", "clients/node/test/load.mjs"]),
    "redis-rs": ("lines", [os.environ["LOAD_RS"]]),
    "redigo": ("lines", [os.environ["LOAD_GO"]]),
    "Java without a library": ("numbers", ["java", "-cp", os.environ["GUARD_WORKER_JAVA"], "Load"]),
}


class Load(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(*NAMES)
        cls.addClassCleanup(cls.server.close)

    def setUp(self):
        self.client = self.server.client()
        self.addCleanup(self.client.close)

    def start(self, client, items):
        """Starts a program, which has to begin by deleting its filter; returns the name of the filter and the process."""
        format, command = PROGRAMS[client]
        key, _ = KEY_AND_BYTES[format]
        self.client.flushall()
        self.client.bf().reserve(key, 0.5, 1)
        self.client.bf().add(key, "an older filter")
        url = self.server.url.replace("//", "//loader:secret@")
        environment = {**ENVIRONMENT, "ITEMS": str(items), "REDIS_URL": url}
        pipe = subprocess.PIPE
        return key, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)

    def test_all_items_are_in_and_counted(self):
        for client in PROGRAMS:
            with self.subTest(client):
                key, run = self.start(client, ITEMS)
                printed, errors = run.communicate()
                self.assertEqual(run.returncode, 0, errors)
                new = re.fullmatch(rf"\w+: (\d+) of {ITEMS} items were new\n", printed)[1]
                self.assertEqual(self.client.bf().card(key), int(new))
                self.assertEqual(self.client.bf().info(key).get("capacity"), ITEMS)
                _, to_bytes = KEY_AND_BYTES[PROGRAMS[client][0]]
                items = [to_bytes(number) for number in range(ITEMS)]
                for start in range(0, ITEMS, 10_000):
                    found = self.client.bf().mexists(key, *items[start : start + 10_000])
                    self.assertTrue(all(found), f"{found.count(0)} items are missing")

    def break_off(self, client, problem, do):
        """Does something to the server while a program loads, which must then end with the problem."""
        key, run = self.start(client, LONG)
        try:
            until(lambda: run.poll() is not None or self.is_loading(key), "a batch is in")
            if run.poll() is None:
                do(key, run)
            _, errors = run.communicate()
            self.assertNotEqual(run.returncode, 0, "the program noticed nothing")
            self.assertRegex(errors, problem)
        finally:
            run.kill()
            run.communicate()

    def is_loading(self, key):
        try:
            return self.client.bf().info(key).get("capacity") == LONG and self.client.bf().card(key) > 0
        except redis.ResponseError:
            return False  # between UNLINK and BF.RESERVE

    def test_a_filter_that_is_lost_is_an_error(self):
        for client in PROGRAMS:
            with self.subTest(client):
                self.break_off(client, "not found", lambda key, run: self.client.unlink(key))

    def test_a_server_that_comes_back_with_an_older_snapshot_is_an_error(self):
        """Also if it is back before the program, which is stopped meanwhile, notices that it was away."""

        def restart(key, run):
            self.client.save()
            saved = self.client.bf().card(key)
            until(lambda: run.poll() is not None or self.client.bf().card(key) > saved, "more batches are in")
            if waiting:  # for the answer to a batch
                self.client.execute_command("CLIENT", "PAUSE", 600_000, "WRITE")
                until(lambda: self.client.info("clients")["blocked_clients"], "a batch waits")
            run.send_signal(signal.SIGSTOP)
            loaded = self.client.bf().card(key)
            self.server.kill()
            self.server.start("--appendonly", "no")
            self.assertLess(self.client.bf().card(key), loaded)
            run.send_signal(signal.SIGCONT)

        closed = "(?i)connection|closed|reset|refused|broken pipe|end of file|EOF"
        for client in PROGRAMS:
            for waiting in (False, True):
                with self.subTest(client, waiting=waiting):
                    self.server.kill()
                    self.server.remove_data()
                    self.server.start("--appendonly", "no")
                    self.break_off(client, closed, restart)


if __name__ == "__main__":
    unittest.main()
