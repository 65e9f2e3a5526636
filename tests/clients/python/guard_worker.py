"""Runs the guard for test_guard.py, which writes commands to it and reads a line for each of them.

    python guard_worker.py MODULE URL

MODULE is guard or guard_asyncio. The database has 2,000 rows. Commands and what is printed:

    build        `ok`
    build lost   `ok`; when the keys are read, the filter under construction is deleted
    build anew   `ok`; when the keys are read, another build begins
    build cut    `ok`; when the keys are read, all other connections to the server are closed
    insert KEY   `ok`
    round        `ASKED FAILURES`, after lookups of 5 rows that exist and 20 that do not: absent rows
                 for which the database was asked, the guard's failures so far; or `hidden KEY ...`
                 if the guard did not find a row

A line that begins with `raised` is an exception. The guard's log goes to standard error.
"""

import asyncio
import logging
import sys

import guard
import guard_asyncio

BREAKS = {  # what `build` is broken with: commands before the keys are read
    "lost": [["UNLINK", guard.NEW]],
    "anew": [["UNLINK", guard.NEW], ["BF.RESERVE", guard.NEW, 0.001, 120_000]],
    "cut": [["CLIENT", "KILL", "TYPE", "normal"]],
}


class Database(dict):
    asked = 0
    meanwhile = staticmethod(lambda: None)  # is run when a build reads the keys

    def get(self, key):
        self.asked += key.startswith("absent")
        return super().get(key)

    def keys(self):
        self.meanwhile()
        return super().keys()

    insert = dict.__setitem__


class AsyncDatabase:
    """The same rows behind coroutines."""

    def __init__(self, rows):
        self.rows = rows

    async def get(self, key):
        return self.rows.get(key)

    async def insert(self, key, value):
        self.rows.insert(key, value)


class Worker:
    def __init__(self, module, url):
        self.url = url
        self.rows = Database((f"user:{i}", f"name {i}") for i in range(2000))
        self.rounds = 0
        if module == "guard":
            reader, writer = guard.connect(url, 0.1), guard.connect(url, 1.0)
            self.guard = guard.Guard(reader, writer, self.rows)
            self.run = lambda value: value
        else:
            reader, writer = guard_asyncio.connect(url, 0.1), guard_asyncio.connect(url, 1.0)
            self.guard = guard_asyncio.AsyncGuard(reader, writer, AsyncDatabase(self.rows))
            self.run = asyncio.new_event_loop().run_until_complete

    def do(self, command, key=None):
        if command == "build":
            with guard.connect(self.url, 10.0) as client:
                commands = BREAKS[key] if key else []
                self.rows.meanwhile = lambda: [client.execute_command(*words) for words in commands]
                guard.build(client, self.rows, wait=0)
        elif command == "insert":
            self.run(self.guard.insert(key, f"inserted {key}"))
        else:
            return self.round()
        return "ok"

    def round(self):
        keys, before = list(self.rows), self.rows.asked
        self.rounds += 1
        present = [keys[-1], *(keys[(self.rounds * 4 + i) % len(keys)] for i in range(4))]
        hidden = [key for key in present if self.run(self.guard.lookup(key)) is None]
        for i in range(20):
            assert self.run(self.guard.lookup(f"absent:{self.rounds}:{i}")) is None
        return f"hidden {hidden}" if hidden else f"{self.rows.asked - before} {self.guard.failures}"


if __name__ == "__main__":
    logging.basicConfig()
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        try:
            print(worker.do(*line.split()), flush=True)
        except Exception as error:
            print("raised", repr(error), flush=True)
