"""Runs the guard of clients/python for test_guard.py, which writes commands to it and reads a line for each of them.

    python guard_worker.py sync|asyncio URL

The database has 2,000 rows. Commands and what is printed:

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
import inspect
import logging
import sys
import time

import redis
import redis.asyncio

from redis_bloom import AsyncGuard, Guard

NEW = "guard:{users}:new"
BREAKS = {  # what `build` is broken with: commands before the keys are read
    "lost": [["UNLINK", NEW]],
    "anew": [["UNLINK", NEW], ["BF.RESERVE", NEW, 0.001, 120_000]],
    "cut": [["CLIENT", "KILL", "TYPE", "normal"]],
}


class Worker:
    def __init__(self, kind, url):
        self.rows = {f"user:{i}": time.time() for i in range(2000)}  # with the time of their writing
        self.url, self.asked, self.rounds = url, 0, 0
        made, client = (Guard, redis.Redis) if kind == "sync" else (AsyncGuard, redis.asyncio.Redis)
        if kind == "asyncio":
            self.fetch = self.fetch_asyncio
        self.guard = made(client.from_url(url), "users", capacity=120_000, catch_up=self.rows_since, commit_within=0.5)

    def rows_since(self, when):
        return [key for key, written in list(self.rows.items()) if written >= when.timestamp()]

    def fetch(self, key):
        self.asked += key.startswith("absent")
        return self.rows.get(key)

    async def fetch_asyncio(self, key):
        return Worker.fetch(self, key)

    async def do(self, command, key=None):
        if command == "build":
            await wait(self.guard.build(lambda: self.keys(BREAKS[key] if key else [])))
        elif command == "insert":
            await wait(self.guard.insert(key))
            self.rows[key] = time.time()
        else:
            return await self.round()
        return "ok"

    def keys(self, commands):
        with redis.Redis.from_url(self.url) as client:
            for words in commands:
                client.execute_command(*words)
        return list(self.rows)

    async def round(self):
        keys, before = list(self.rows), self.asked
        self.rounds += 1
        present = [keys[-1], *(keys[(self.rounds * 4 + i) % len(keys)] for i in range(4))]
        hidden = [key for key in present if await wait(self.guard.lookup(key, self.fetch)) is None]
        for i in range(20):
            assert await wait(self.guard.lookup(f"absent:{self.rounds}:{i}", self.fetch)) is None
        return f"hidden {hidden}" if hidden else f"{self.asked - before} {self.guard.stats.lookup_failures}"


async def wait(result):
    return await result if inspect.isawaitable(result) else result


async def main():
    worker = Worker(*sys.argv[1:])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            print(await worker.do(*line.split()), flush=True)
        except Exception as error:
            print("raised", repr(error), flush=True)


if __name__ == "__main__":
    logging.basicConfig()
    asyncio.run(main())
