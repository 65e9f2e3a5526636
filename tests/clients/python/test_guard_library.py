"""The Guard of clients/python: no row is ever hidden after its insert, whatever happens to the server.

Rows have timestamps from before their insert, by a clock that is 0.3 seconds off. The guards' times are
shortened, but for the timeouts.
"""

import asyncio
import contextlib
import datetime
import functools
import itertools
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
import unittest.mock

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from redis_bloom import AsyncGuard, Guard, guard
from server import Proxy, Server, free_port, until

ROOT = pathlib.Path(__file__).parents[3]
COMMIT = 0.2  # seconds: commit_within
SEEDS = [int(seed) for seed in os.environ.get("GUARD_SEEDS", "1 2 3").split()]
STEPS = int(os.environ.get("GUARD_STEPS", 120))


class Snapshots(Server):
    """A server whose data are those of its last snapshot, or of an older one."""

    def start(self, *_, wait=True):
        super().start("--appendonly", "no", "--repl-diskless-sync-delay", "0", wait=wait)

    @property
    def dump(self):
        return pathlib.Path(self.directory.name, "dump.rdb")

    def restart(self, snapshot=None):
        self.kill()
        if snapshot:
            shutil.copy(snapshot, self.dump)
        self.start()

    def save(self, number=0):
        """Takes a snapshot, and keeps a copy of it."""

        def saved():
            with contextlib.suppress(redis.ResponseError):  # a replica is being filled
                return client.save()

        with self.client() as client:
            until(saved, "a snapshot")
        return shutil.copy(self.dump, f"{self.dump}.{number}")


class Database:
    """Its rows are in a file, too, which guards of other languages read: of each row a line with time and key."""

    def __init__(self, rows=()):
        self.rows, self.file = {}, tempfile.NamedTemporaryFile("w")
        self.lock = threading.Lock()
        self.skew = 0.0
        self.asked = []  # for rows since when
        for key in rows:
            self.put(key, time.time())

    def now(self):
        return time.time() + self.skew

    def put(self, key, when):
        print(when, key, file=self.file, flush=True)
        self.rows[key] = (key, when)

    def write(self, key, when):
        with self.lock:
            self.put(key, when)

    def get(self, key):
        with self.lock:
            return self.rows.get(key, (None,))[0]

    def keys(self):
        with self.lock:
            return list(self.rows)

    def since(self, when):
        assert when.tzinfo is datetime.timezone.utc
        self.asked.append(when)
        with self.lock:
            return [key for key, written in self.rows.values() if written >= when.timestamp()]


class Remote:
    """A guard in another language, in a process of its own, which reads commands and answers each with a line:

        insert KEY     `ok`
        lookup KEY     `possible` or `absent`
        build          `ok`
        stats          `SAVED CATCH_UPS`

    A line that begins with `raised` is an error. The process is given a URL and the file of a database.
    """

    def __init__(self, command, url, database):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*command, url, database.file.name], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        self.lock = threading.Lock()

    def ask(self, *words):
        with self.lock:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline().strip()
        if answer.startswith("raised"):
            raise redis.RedisError(answer)
        return answer

    def insert(self, key):
        assert self.ask("insert", key) == "ok"

    def build(self, _):
        assert self.ask("build") == "ok"

    def lookup(self, key, fetch):
        return {"possible": fetch, "absent": lambda _: None}[self.ask("lookup", key)](key)

    def lookup_many(self, keys, fetch):
        return fetch([key for key in keys if self.ask("lookup", key) == "possible"])

    @property
    def stats(self):
        saved, catch_ups = map(int, self.ask("stats").split())
        return guard.Stats(saved=saved, catch_ups=catch_ups)


REMOTES = [
    ["node", "clients/node/test/model-worker.js"],
    [os.environ["MODEL_WORKER_RS"], "blocking"],
    [os.environ["MODEL_WORKER_RS"], "tokio"],
]


class Case(unittest.TestCase):
    def setUp(self):
        for name, value in (("PAUSE", 0.0), ("TICK", 0.05)):
            patch = unittest.mock.patch.object(guard, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        guard.log.setLevel("CRITICAL")
        self.addCleanup(guard.log.setLevel, "NOTSET")
        self.server = Snapshots()
        self.addCleanup(self.server.close)
        self.database = Database(f"row:{i}" for i in range(500))

    def guard(self, url=None, **options):
        options = {"catch_up": self.database.since, "commit_within": COMMIT, "margin": 1.5, "timeout": 0.5, **options}
        client = redis.Redis.from_url(url or self.server.url)
        made = Guard(client, "users", capacity=10_000, error=0.001, **options)
        self.addCleanup(made.close)
        return made

    def remotes(self, url=None):
        """A guard of each other library."""
        for command in REMOTES:
            one = Remote(command, url or self.server.url, self.database)
            self.addCleanup(one.process.communicate)
            yield one

    def insert(self, one, key):
        """As an application: tries again, without the row, if the filter takes too long, as on a busy machine."""

        def done():
            when = self.database.now()
            with contextlib.suppress(redis.RedisError, TimeoutError):
                one.insert(key)
                self.database.write(key, when)
                return True

        until(done, "the key is inserted")

    def guarded(self, one):
        """Waits until absent rows are stopped: of 20, 3 pass by chance with a probability of 1e-6."""
        numbers = itertools.count()

        def stopped():
            before = one.stats.saved
            for _ in range(20):
                self.assertIsNone(one.lookup(f"absent:{id(one)}:{next(numbers)}", self.database.get))
            return one.stats.saved - before >= 17

        until(stopped, "absent rows are stopped")

    def finds_all(self, *guards):
        for one in guards:
            hidden = [key for key in self.database.keys() if one.lookup(key, self.database.get) is None]
            self.assertEqual(hidden, [])
            found = one.lookup_many(self.database.keys(), lambda keys: keys)
            self.assertEqual(set(self.database.keys()) - set(found), set())


class Guards(Case):
    def test_the_server_restarts_from_an_older_snapshot(self):
        one = self.guard()
        one.build(self.database.keys)
        self.guarded(one)
        self.server.save()
        for i in range(100):
            self.insert(one, f"late:{i}")
        self.server.restart()
        self.finds_all(one)
        self.guarded(one)
        self.finds_all(one)
        self.assertEqual((one.stats.catch_ups, one.stats.builds), (1, 1))
        with self.server.client() as client:
            self.assertEqual(client.bf().exists(one.filter, "late:99"), 1)
        # No row before the snapshot, less the margin, was read again.
        self.assertLess(abs(self.database.asked[0].timestamp() + 1.5 - self.server.dump.stat().st_mtime), 20)

    def test_the_guard_of_the_readme(self):
        readme = (ROOT / "README.md").read_text()
        (code,) = re.findall(r"<!-- run by test_guard_library.py -->\n```python\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
        code = code.replace("redis.Redis()", f"redis.Redis(port={self.server.port})")
        self.assertIn("guard.insert(key); db.insert(row) ", code)
        db = unittest.mock.Mock(get=self.database.get, insert=lambda row: self.database.write(row, self.database.now()))
        names = {"rows_since": self.database.since, "all_keys": self.database.keys, "db": db, "key": "new", "row": "new"}
        exec(code, names)
        self.addCleanup(names["guard"].close)
        self.assertEqual(names["row"], "new")
        self.assertEqual(names["guard"].stats.builds, 1)

    def test_a_row_that_commits_during_the_catch_up_is_found(self):
        """Its key was in the server that died, and its row is written when the next one is up."""
        one = self.guard(commit_within=2.0)
        one.build(self.database.keys)
        self.server.save()
        when = self.database.now()
        one.insert("slow")
        self.server.restart()
        time.sleep(0.5)
        self.database.write("slow", when)
        self.guarded(one)
        self.finds_all(one)

    def test_without_the_server_inserts_raise_or_wait(self):
        one, later = self.guard(), self.guard(on_unavailable="later")
        one.build(self.database.keys)
        later.tick()
        self.server.save()
        self.server.kill()
        self.assertEqual(one.lookup_many([], list), [])
        self.assertEqual(one.stats.lookup_failures, 0)  # nobody was asked
        with self.assertRaises(redis.RedisError):
            one.insert("refused")
        self.insert(later, "kept")
        self.finds_all(one, later)
        self.assertEqual((one.stats.insert_failures, later.stats.insert_failures), (1, 1))
        self.server.start()
        until(lambda: later.stats.late == 1, "the key is added")
        self.guarded(one)
        self.finds_all(one, later)

    def test_at_maxmemory_lookups_are_answered_and_inserts_raise_or_wait(self):
        one, later = self.guard(), self.guard(on_unavailable="later")
        one.build(self.database.keys)
        later.tick()
        with self.server.client() as client:
            client.config_set("maxmemory", 1)
            with self.assertRaises(redis.OutOfMemoryError):
                one.insert("refused")
            with self.assertRaises(redis.OutOfMemoryError):
                one.build(self.database.keys)
            self.insert(later, "kept")
            new = self.guard()
            for each in (one, later, new):
                self.guarded(each)
                self.assertEqual(each.stats.lookup_failures, 0)
            self.finds_all(later)
            client.config_set("maxmemory", 0)
        until(lambda: later.stats.late == 1, "the key is added")
        self.finds_all(one, later, new)
        self.assertEqual(sum(each.stats.catch_ups for each in (one, later, new)), 0)

    def test_a_guard_that_never_reached_the_server_keeps_no_keys_for_later(self):
        self.server.kill()
        with self.assertRaises(redis.RedisError):
            self.guard(on_unavailable="later").insert("key")

    def test_a_closed_guard_keeps_no_keys_for_later(self):
        one = self.guard(on_unavailable="later")
        one.build(self.database.keys)
        one.tick()
        one.close()
        self.server.kill()
        with self.assertRaises(redis.RedisError):
            one.insert("key")

    def test_a_catch_up_reads_the_rows_of_inserts_in_flight(self):
        """A row is up to `margin` older than the call of its insert, which takes up to `commit_within`."""
        one = self.guard(catch_up=None)
        one.build(self.database.keys)
        one.tick()
        with self.server.client() as client:
            heartbeat = float(client.hget(one.filter + ":state", "heartbeat")) / 1000
        self.server.save()
        self.server.restart()
        self.guard().tick()
        self.assertAlmostEqual(self.database.asked[0].timestamp(), heartbeat - 1.5 - COMMIT, places=3)

    def test_a_slot_that_moves_away_and_back_is_not_trusted(self):
        """The other node may have lost inserts, and the first one has its ID again."""
        one = self.guard(catch_up=None)
        one.build(self.database.keys)
        with self.server.client() as client:
            for do in (one.tick, functools.partial(one.insert, "new")):
                client.hset(one.filter + ":state", "trusted", "0" * 40)  # as on the other node
                do()
                self.assertEqual(client.hmget(one.filter + ":state", "trusted", "token"), [None, None])
        self.guarded(self.guard())

    def test_a_replica_that_can_be_written_takes_no_insert(self):
        one = self.guard(catch_up=None)
        one.build(self.database.keys)
        with self.server.client() as client:
            client.config_set("replica-read-only", "no")
            client.replicaof("127.0.0.1", 1)
            with self.assertRaises(redis.ReadOnlyError):
                one.insert("new")

    def test_builds_and_refreshes_disturb_no_lookup(self):
        """They would send all lookups to the database for a second, if they changed the token."""
        with unittest.mock.patch.object(guard, "PAUSE", 1.0):
            one, other = self.guard(catch_up=None, timeout=10), self.guard(refresh=0.1)
            other.build(self.database.keys)
            other.lookup("row:1", self.database.get)  # starts its background
            work = threading.Thread(target=lambda: [other.build(self.database.keys) for _ in range(3)])
            work.start()
            while work.is_alive() or other.stats.catch_ups < 2:
                self.assertEqual(one.lookup("row:1", self.database.get), "row:1")
            self.assertEqual(one.stats.lookup_failures, 0)

    def test_slow_clocks_and_dead_processes_cause_no_endless_catch_ups(self):
        one = self.guard(catch_up=None)
        one.build(self.database.keys)
        with self.server.client() as client:

            def tick(process, behind=0):
                words = (round(time.time() * 1000) - behind, process, "all", 60_000, 0, 40_000)
                state, _, *found = client.eval(guard.script("tick"), 4, *one._keys, *words)
                client.unlink(one._keys[3])
                return state

            def heard(covered, seen):
                """Of a process that was heard of and covered so many seconds ago."""
                now = time.time()
                client.hset(one._keys[1], "late:dead", " ".join(str(round(1000 * (now - ago))) for ago in (covered, seen)))
                return tick("other")

            self.assertEqual([tick("slow", 100_000), tick("other")], [b"trusted"] * 2)
            self.assertEqual(heard(50, 50), b"trusted")
            self.assertEqual(heard(70, 70), b"catch up")
            self.assertEqual(heard(70, 130), b"catch up")
            # It may have died, or writes rows: the longer nothing was heard of it, the rarer are the catch-ups.
            self.assertEqual(heard(70, 200), b"trusted")
            self.assertEqual(heard(140, 200), b"catch up")

    def test_a_process_that_dies_with_keys_for_later_is_caught_up(self):
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        one, dead = self.guard(), self.guard(url=proxy.url, on_unavailable="later", insert_timeout=0.2)
        one.build(self.database.keys)
        dead.tick()
        self.guarded(one)
        dead._start = lambda: None  # no background
        proxy.close()
        proxy.freeze()
        self.insert(dead, "kept")
        with unittest.mock.patch.object(guard, "STALE", 0.3):
            until(lambda: one.stats.catch_ups, "a catch-up")
        self.guarded(one)
        self.finds_all(one)

    def test_a_forked_process_is_a_guard_of_its_own(self):
        """Otherwise its parent would vouch for the keys that waited in it when it died."""
        proxy = Proxy(self.server.port)
        self.addCleanup(proxy.close)
        one, forked = self.guard(), self.guard(url=proxy.url, on_unavailable="later", insert_timeout=0.2)
        one.build(self.database.keys)
        forked.tick()
        self.guarded(forked)  # which starts its background
        (here, there), when = socket.socketpair(), self.database.now()
        child = os.fork()
        if not child:
            forked._start = lambda: None  # no background
            with contextlib.suppress(redis.RedisError):
                forked.insert("refused")  # it has not reached the server yet, or it has: both are right
            forked.tick()
            there.send(b"known")
            there.recv(6)
            forked.insert("kept")
            os.kill(os.getpid(), signal.SIGKILL)
        self.assertEqual(here.recv(5), b"known")
        proxy.freeze()
        here.send(b"frozen")
        os.waitpid(child, 0)
        for end in here, there:
            end.close()
        self.database.write("kept", when)
        with unittest.mock.patch.object(guard, "STALE", 0.3):
            until(lambda: one.lookup("kept", self.database.get), "the row is found")
        self.guarded(one)
        self.finds_all(one, forked)

    def test_a_forked_process_does_not_wait_for_a_lock_of_its_parent(self):
        one = self.guard()
        for use in (lambda: one.build(self.database.keys), one.close):
            with one._ends._cond:  # as its background has it for a moment
                child = os.fork()
                if not child:
                    signal.alarm(20)
                    use()
                    os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_keys_are_sent_in_utf_8_whatever_the_client_does(self):
        one = self.guard(url=self.server.url + "?encoding=latin-1")
        one.build(["möglich"])
        one.insert("münchen")
        for key in ("möglich", "münchen"):
            self.assertEqual(one.lookup(key, lambda key: "row"), "row")
        self.assertEqual(one.stats.lookup_failures, 0)

    def test_a_key_that_is_no_text_and_no_bytes_is_refused(self):
        one = self.guard()
        one.build(self.database.keys)
        self.guarded(one)
        one._waiting[b"key"] = None
        for key in 42, None:
            with self.assertRaises(TypeError):
                one.insert(key)
            self.assertEqual(one.lookup(key, lambda key: "row"), "row")

    def test_many_threads_share_a_guard_whose_server_restarts(self):
        one = self.guard()
        one.build(self.database.keys)
        self.guarded(one)
        self.server.save()
        hidden, ends = [], threading.Event()

        def look_up(number):
            while not ends.is_set():
                for key in (f"row:{number}", f"absent:{number}"):
                    if one.lookup(key, self.database.get) is None and key in self.database.rows:
                        hidden.append(key)

        def write(number):
            for count in itertools.count():
                if ends.is_set():
                    return
                key = f"new:{number}:{count}"
                self.insert(one, key)
                if one.lookup(key, self.database.get) is None:
                    hidden.append(key)

        threads = [threading.Thread(target=do, args=(n,)) for n in range(8) for do in (look_up, write)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            time.sleep(0.3)
            before = one.stats.catch_ups
            self.server.restart()
            until(lambda: one.stats.catch_ups > before, "a catch-up")
        ends.set()
        for thread in threads:
            thread.join()
        self.assertEqual(hidden, [])
        self.finds_all(one)

    def test_rows_written_past_the_guard_are_found_after_a_refresh(self):
        one = self.guard(refresh=0.5)
        one.build(self.database.keys)
        self.guarded(one)
        self.database.write("past", self.database.now())
        until(lambda: one.lookup("past", self.database.get), "the row is found")

    def test_a_dead_holder_of_the_lock_stops_nobody_for_long(self):
        one = self.guard()
        one.build(self.database.keys)
        self.server.save()
        self.insert(one, "new")
        self.server.restart()
        child = os.fork()
        if not child:
            die = lambda when: os.kill(os.getpid(), signal.SIGKILL)
            client = redis.Redis.from_url(self.server.url)
            Guard(client, "users", capacity=1, catch_up=die, commit_within=0).tick()
            os._exit(1)
        os.waitpid(child, 0)
        with self.server.client() as client:
            client.pexpire("guard:{users}:lock", 300)  # its 30 seconds
        self.finds_all(one)
        self.guarded(one)
        self.finds_all(one)

    def test_a_catch_up_that_failed_is_tried_again_before_its_lock_ends(self):
        failures = [OSError("the database is down")] * 2

        def since(when):
            if failures:
                raise failures.pop()
            return self.database.since(when)

        one = self.guard(catch_up=since)
        one.build(self.database.keys)
        self.server.save()
        self.insert(one, "new")
        self.server.restart()
        begin = time.monotonic()
        self.guarded(one)
        self.finds_all(one)
        self.assertLess(time.monotonic() - begin, 25)  # the lock lasts 30 seconds
        self.assertEqual((one.stats.catch_up_failures, one.stats.catch_ups), (2, 1))

    def test_a_catch_up_that_hangs_does_not_keep_close_waiting(self):
        called, free = threading.Event(), threading.Event()
        self.addCleanup(free.set)

        def since(when):
            called.set()
            free.wait()
            return []

        one = self.guard(catch_up=since, refresh=0.1)
        one.build(self.database.keys)
        one.insert("new")  # starts the background
        self.assertTrue(called.wait(60))
        begin = time.monotonic()
        one.close()
        self.assertLess(time.monotonic() - begin, 10)

    async def catching_up(self, since, called):
        """A client and its AsyncGuard, whose background has called `since`."""
        client = redis.asyncio.Redis.from_url(self.server.url)
        one = AsyncGuard(client, "users", capacity=1000, catch_up=since, commit_within=COMMIT, refresh=0.1)
        await one.build(self.database.keys)
        await one.insert("new")
        await asyncio.wait_for(called.wait(), 60)
        return client, one

    def test_a_catch_up_that_hangs_does_not_keep_aclose_waiting(self):
        async def scenario():
            called, free = asyncio.Event(), asyncio.Event()

            async def since(when):
                called.set()
                while not free.is_set():
                    with contextlib.suppress(asyncio.CancelledError):
                        await free.wait()
                return []

            client, one = await self.catching_up(since, called)
            begin = time.monotonic()
            await one.aclose()
            self.assertLess(time.monotonic() - begin, 10)
            free.set()
            await client.aclose()

        asyncio.run(scenario())

    @unittest.skipIf(sys.version_info < (3, 11), "only later ones can tell that a task was cancelled")
    def test_a_cancellation_that_was_swallowed_ends_the_background(self):
        """`asyncio.run` cancels the background at its end, and waits for it."""

        async def scenario():
            called = asyncio.Event()

            async def since(when):
                if not called.is_set():
                    called.set()
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(600)
                return []

            client, one = await self.catching_up(since, called)
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            _, pending = await asyncio.wait(tasks, timeout=20)
            self.assertEqual(pending, set())
            await one.aclose()
            await client.aclose()

        asyncio.run(scenario())

    def test_a_filter_that_is_lost_or_made_by_others_is_not_trusted(self):
        one = self.guard()
        one.build(self.database.keys)
        with self.server.client() as client:
            client.unlink(one.filter)
            self.finds_all(one)
            client.bf().add(one.filter, "row:1")
            self.finds_all(one)
            client.set(one.filter, "no filter")
            self.finds_all(one)
            client.unlink(one.filter)
        one.build(self.database.keys)
        self.guarded(one)
        self.finds_all(one)

    def test_the_scripts_of_the_server_are_lost(self):
        one = self.guard()
        one.build(self.database.keys)
        with self.server.client() as client:
            client.script_flush()
        self.guarded(one)
        self.assertEqual(one.stats.catch_ups, 0)

    def test_the_scripts_of_the_server_are_lost_while_many_look_up(self):
        async def get(key):
            return self.database.get(key)

        async def scenario():
            async with redis.asyncio.Redis.from_url(self.server.url) as client:
                one = AsyncGuard(client, "users", capacity=1000, timeout=5, commit_within=COMMIT)
                async with one:
                    await one.build(self.database.keys)
                    await one.lookup("row:1", get)
                    await client.script_flush()
                    for _ in range(5):
                        saved = one.stats.saved
                        await asyncio.gather(*(one.lookup(f"absent:{number}", get) for number in range(40)))
                    self.assertGreater(one.stats.saved - saved, 30)
                    self.assertLessEqual(len(one._kept), 16)

        with unittest.mock.patch.object(guard, "KEPT", 16):
            asyncio.run(scenario())

    def test_a_build_is_broken(self):
        one = self.guard()
        one.build(self.database.keys)
        client = self.server.client()
        self.addCleanup(client.close)
        new = one.filter + ":new"
        reserve = lambda: client.execute_command("BF.RESERVE", new, 0.001, 100)
        breaks = {
            "lost": lambda: client.unlink(new),
            "anew": lambda: (client.unlink(new), reserve()),
            "restart": self.server.restart,
        }
        self.server.save()
        for name, broken in breaks.items():

            def keys():
                broken()
                yield from self.database.keys()

            with self.subTest(name), self.assertRaises(redis.RedisError):
                one.build(keys())
        self.guarded(one)
        self.finds_all(one)

    def test_inserts_during_a_build_are_found(self):
        one = self.guard()
        ends, done = threading.Event(), itertools.count()

        def insert():
            while not ends.is_set():
                self.insert(one, f"new:{next(done)}")

        threads = [threading.Thread(target=insert) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                one.build(self.database.keys)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        self.assertGreater(next(done), 3)
        self.guarded(one)
        self.finds_all(one)

    def test_a_demoted_primary_is_not_trusted(self):
        """It follows another server with older data, on the connections that the guard has."""
        one = self.guard(catch_up=None)
        one.build(self.database.keys)
        other = Snapshots()
        self.addCleanup(other.close)
        with other.client() as follower, self.server.client() as client:
            follower.replicaof("127.0.0.1", self.server.port)
            until(lambda: follower.info("replication")["master_link_status"] == "up", "it follows")
            client.wait(1, 10_000)
            follower.replicaof("NO", "ONE")
            self.insert(one, "new")
            client.replicaof("127.0.0.1", other.port)
            until(lambda: client.info("replication")["master_link_status"] == "up", "it follows")
            self.assertEqual(client.execute_command("BF.EXISTS", one.filter, "new"), 0)
            self.finds_all(one)
            client.replicaof("NO", "ONE")
            self.guard().tick()
            self.finds_all(one)

    def test_a_primary_that_lost_its_replicas_is_not_trusted_if_it_is_told_so(self):
        one = self.guard()
        one.build(self.database.keys)
        self.guarded(one)
        with self.server.client() as client:
            client.config_set("min-replicas-to-write", 1)
            before = one.stats.saved
            self.finds_all(one)
            self.assertIsNone(one.lookup("absent", self.database.get))
            self.assertEqual(one.stats.saved, before)

    def test_an_insert_that_took_too_long_raises(self):
        """A catch-up may have read the rows in the meantime."""
        one = self.guard()
        one.build(self.database.keys)
        with self.server.client() as client:
            client.execute_command("CLIENT PAUSE", 300, "WRITE")
            with self.assertRaises(TimeoutError):
                one.insert("slow")

    def test_a_unix_socket(self):
        path = f"{self.server.directory.name}/socket"
        server = Server("--unixsocket", path)
        self.addCleanup(server.close)
        code = f"""if True:
            import redis, redis_bloom
            one = redis_bloom.Guard(redis.Redis(unix_socket_path={path!r}), "users", capacity=100, commit_within=1, timeout=5)
            one.build(lambda: ["row"])
            one.insert("new")
            print(one.lookup("row", str), one.lookup("new", str), one.lookup("absent", str))"""
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}  # redis-py 4 has no library installed
        for python in sys.executable, os.environ["PYTHON_REDIS_4"]:
            output = subprocess.check_output([python, "-c", code], env=environment, text=True)
            self.assertEqual(output, "row new None\n")

    def test_a_cluster(self):
        """A node alone, with all slots, then without one, which is enough for CLUSTERDOWN."""
        server = Server("--cluster-enabled", "yes")
        self.addCleanup(server.close)
        state = lambda: client.execute_command("CLUSTER INFO")["cluster_state"]
        with server.client() as client:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            until(lambda: state() == "ok", "it is up")
            timeouts = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "retry": Retry(NoBackoff(), 0)}
            cluster = redis.RedisCluster.from_url(server.url, decode_responses=True, **timeouts)
            self.addCleanup(cluster.close)
            one = Guard(cluster, "users", capacity=10_000, catch_up=self.database.since, commit_within=COMMIT)
            self.addCleanup(one.close)
            rust = Remote([os.environ["MODEL_WORKER_RS"], "cluster"], server.url, self.database)
            self.addCleanup(rust.process.communicate)
            one.build(self.database.keys)
            self.insert(one, "new")
            self.insert(rust, "newer")
            for each in (one, rust):
                self.guarded(each)
            self.finds_all(one, rust)
            client.execute_command("CLUSTER DELSLOTS", 0)
            until(lambda: state() == "fail", "it is down")
            for each in (one, rust):
                for key in ("row:1", "new"):
                    self.assertEqual(each.lookup(key, self.database.get), key)
                with self.assertRaises(Exception):  # RedisClusterException is no RedisError
                    each.insert("other")
            client.execute_command("CLUSTER ADDSLOTS", 0)
            until(lambda: state() == "ok", "it is up")
            self.guarded(one)
            rust.build(None)
            self.guarded(rust)

    def test_an_address_moves_to_a_new_primary_and_the_connections_stay(self):
        """As behind a proxy: the old primary refuses what it gets on them."""
        other, proxy = Snapshots(), Proxy(self.server.port)
        self.addCleanup(other.close)
        self.addCleanup(proxy.close)
        one = self.guard(url=proxy.url)
        one.build(self.database.keys)
        self.guarded(one)
        with other.client() as follower, self.server.client() as client:
            follower.replicaof("127.0.0.1", self.server.port)
            until(lambda: follower.info("replication")["master_link_status"] == "up", "it follows")
            follower.replicaof("NO", "ONE")
            client.replicaof("127.0.0.1", other.port)
            proxy.port = other.port
        for do in (one.build, self.database.keys), (one.insert, "new"):
            with contextlib.suppress(redis.ReadOnlyError):
                do[0](do[1])
            do[0](do[1])
        self.guarded(one)

    def test_timeouts_are_the_guards_own(self):
        """redis.Redis() waits without end, or tries 11 times in 5 seconds."""
        one = Guard(redis.Redis(port=free_port()), "users", capacity=1)
        self.addCleanup(one.close)
        for client, seconds in ((one._reader, 0.1), (one._writer, 1.0), (one._builder, 10.0)):
            options = client.connection_pool.connection_kwargs
            self.assertEqual((options["socket_timeout"], options["socket_connect_timeout"]), (seconds, seconds))
            self.assertEqual(options["retry"]._retries, 0)
        self.assertEqual(one.lookup("key", lambda key: 1), 1)
        with self.assertRaises(ValueError):
            Guard(redis.Redis(), "", capacity=1)
        with self.assertRaises(ValueError):
            Guard(redis.Redis(), "users", capacity=1, on_unavailable="later")

    def test_asyncio_tasks_are_cancelled(self):
        """Their replies, which come later, are not taken for those of others."""

        async def get(key):
            return self.database.get(key)

        async def scenario():
            # An insert that takes a second on a busy machine is no failure here.
            options = {"timeout": 0.5, "commit_within": 4.0}
            client = redis.asyncio.Redis.from_url(self.server.url)
            async with client, AsyncGuard(client, "users", capacity=1000, **options) as one:
                await one.build(self.database.keys)
                for number in range(300):
                    tasks = [asyncio.ensure_future(one.lookup(f"absent:{number}:{i}", get)) for i in range(3)]
                    tasks.append(asyncio.ensure_future(one.insert(f"cancelled:{number}")))
                    for _ in range(number % 12):
                        await asyncio.sleep(0)
                    for task in tasks:
                        task.cancel()
                    await one.insert(f"new:{number}")
                    self.database.write(f"new:{number}", self.database.now())
                    for key in (f"row:{number}", f"new:{number}"):
                        self.assertEqual(await one.lookup(key, get), key)
                    await asyncio.gather(*tasks, return_exceptions=True)
                self.assertEqual(one.stats.lookup_failures, 0)

        asyncio.run(scenario())
        with self.server.client() as client:
            new = [f"new:{number}" for number in range(300)]
            self.assertEqual(client.bf().mexists("guard:{users}", *new), [1] * 300)

    def test_asyncio_tasks_are_cancelled_in_redis_py_4(self):
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}
        test = "test_guard_library.Guards.test_asyncio_tasks_are_cancelled"
        command = [os.environ["PYTHON_REDIS_4"], "-m", "unittest", test]
        subprocess.run(command, env=environment, cwd=pathlib.Path(__file__).parent, check=True)

    def test_asyncio(self):
        async def keys():
            for key in self.database.keys():
                yield key

        async def get(key):
            return self.database.get(key)

        async def since(when):
            return self.database.since(when)

        async def scenario():
            client = redis.asyncio.Redis.from_url(self.server.url)
            options = {"catch_up": since, "commit_within": COMMIT, "on_unavailable": "later"}
            async with AsyncGuard(client, "users", capacity=1000, timeout=0.5, **options) as one:
                await one.build(keys)
                await one.tick()
                self.assertIsNone(await one.lookup("absent", get))
                self.server.save()
                when = self.database.now()
                await one.insert("new")
                self.database.write("new", when)
                self.server.kill()
                await one.insert("later")
                self.database.write("later", when)
                self.server.start()
                end = time.monotonic() + 60
                while not (one.stats.catch_ups and one.stats.late) and time.monotonic() < end:
                    await asyncio.sleep(0.05)
                for key in self.database.keys():
                    self.assertEqual(await one.lookup(key, get), key)
                self.assertEqual((one.stats.catch_ups, one.stats.late), (1, 1))

                async def some(keys):
                    return keys

                self.assertIn("new", await one.lookup_many(["new", "absent"], some))
            await client.aclose()

        asyncio.run(scenario())


class Languages(Case):
    """Guards of all libraries have one filter."""

    def insert_each(self, guards, number):
        for i, one in enumerate(guards):
            self.insert(one, f"new:{number}:{i}")

    def all_is_well(self, guards):
        """All stop absent rows, and hide none."""
        for one in guards:
            self.guarded(one)
        self.finds_all(*guards)

    def test_each_finds_the_rows_of_the_others_also_after_a_catch_up(self):
        guards = [self.guard(), *self.remotes()]
        for number, builder in enumerate(guards):
            builder.build(self.database.keys)
            self.insert_each(guards, f"{number}:1")
            self.all_is_well(guards)
            self.server.save()
            self.insert_each(guards, f"{number}:2")
            before = [one.stats.catch_ups for one in guards]
            self.server.restart()
            self.all_is_well(guards)
            self.assertEqual(sum(one.stats.catch_ups for one in guards) - sum(before), 1)  # by one of them, for all

    def test_each_catches_up(self):
        for one in self.remotes():
            one.build(self.database.keys)
            self.server.save()
            self.insert(one, f"new:{id(one)}")
            self.server.restart()
            self.all_is_well([one])
            self.assertEqual(one.stats.catch_ups, 1)
            one.process.communicate()


class Model(Case):
    """Random faults under seeds, with guards of all libraries; each step also looks some rows up."""

    def no_row_is_ever_hidden(self, seed):
        guards = self.run_model(random.Random(seed))
        # The faults did not only keep the filter untrusted.
        saved = [one.stats.saved for one in guards]
        self.assertGreater(min(saved), 20, saved)  # of each guard; `guarded` stops 17 at the end
        self.assertGreater(guards[2].stats.late, 0)

    def run_model(self, chance):
        self.database = Database(f"row:{i}" for i in range(100))
        servers = [Snapshots(), Snapshots()]
        for server in servers:
            self.addCleanup(server.close)
        self.primary, self.follower = servers
        self.follow()
        proxy = Proxy(self.primary.port)
        self.addCleanup(proxy.close)
        self.proxy, self.snapshots, self.writes = proxy, [], []
        guards = [self.guard(url=proxy.url, on_unavailable=mode, insert_timeout=0.5) for mode in ("raise", "raise", "later")]
        guards += self.remotes(proxy.url)
        self.history, self.kept, self.ahead, self.fence = [], set(), 0.0, None
        clock = types.SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + self.ahead)
        skewed = unittest.mock.patch.object(guard, "time", clock)
        guards[0].build(self.database.keys)
        actions = [self.insert_rows] * 8 + [self.wait] * 3 + [
            self.snapshot, self.snapshot, self.kill, self.older, self.fail_over, self.pause, self.delete, self.forget,
            self.hold_lock, self.change_clocks, self.rebuild, self.rebuild,
        ]  # fmt: skip
        with skewed:
            for step in range(STEPS):
                action = chance.choice(actions)
                self.history.append(action.__name__)
                action(chance, guards, step)
                self.look_up(chance, guards)
            self.ahead = 0.0
            for write in self.writes:
                write.join()
            self.try_to(guards[0].build, self.database.keys)
            for one in guards:
                self.guarded(one)
            until(lambda: not guards[2]._waiting, "all keys are added")
            self.finds_all(*guards)
            # Only a catch-up makes the filter trusted after this.
            before = sum(one.stats.catch_ups for one in guards)
            saved = self.primary.save(STEPS)
            self.insert(guards[0], "last")
            self.primary.restart(saved)
            for one in guards:
                self.guarded(one)
            self.finds_all(*guards)
            self.assertGreater(sum(one.stats.catch_ups for one in guards), before)
        return guards

    def try_to(self, do, *words):
        def done():
            with contextlib.suppress(redis.RedisError, TimeoutError):
                do(*words)
                return True

        until(done, "it works")

    def look_up(self, chance, guards):
        late = guards[2]
        for one in guards:
            keys = self.database.keys()
            for key in chance.sample(keys, 10) + keys[-10:]:
                if one is not late and key in self.kept:  # others may miss what this one still has to add
                    continue
                if one.lookup(key, self.database.get) is None:
                    self.fail(f"{key} is hidden, after {self.history}")
            one.lookup(f"absent:{chance.random()}", self.database.get)

    def insert_rows(self, chance, guards, step):
        for number in range(5):
            one, key, when = chance.choice(guards), f"new:{step}:{number}", self.database.now()
            if one is guards[2]:
                self.insert_late(one, key, when)
                continue
            begin = time.monotonic()
            with contextlib.suppress(redis.RedisError, TimeoutError):
                one.insert(key)
                delay = chance.uniform(0, COMMIT / 2)
                if time.monotonic() - begin + delay < COMMIT * 0.9:
                    write = threading.Timer(delay, self.commit, (key, when, begin))
                    write.start()
                    self.writes.append(write)

    def commit(self, key, when, begin):
        """The database's timeout: a row that is too late is not written."""
        with self.database.lock:
            if time.monotonic() - begin < COMMIT and (self.fence is None or begin < self.fence):
                self.database.put(key, when)

    def insert_late(self, one, key, when):
        begin = time.monotonic()
        with contextlib.suppress(redis.RedisError, TimeoutError):
            one.insert(key)
            if key.encode() in list(one._waiting):
                self.kept.add(key)
                self.database.write(key, when)
            else:
                self.commit(key, when, begin)

    def wait(self, chance, *_):
        time.sleep(chance.choice((0.05, 0.3, 1.0)))

    def snapshot(self, chance, guards, step):
        self.snapshots.append(self.primary.save(step))

    def kill(self, *_):
        self.primary.restart()

    def older(self, chance, *_):
        self.primary.restart(chance.choice(self.snapshots) if self.snapshots else None)

    def follow(self):
        with self.follower.client() as client:
            client.replicaof("127.0.0.1", self.primary.port)

    def fail_over(self, chance, guards, step):
        """The replica lags, and becomes the primary; the old one follows it, or is killed, or gone for a while."""
        with self.follower.client() as follower, self.primary.client() as primary:
            follower.replicaof("NO", "ONE")
            self.fence = time.monotonic() + COMMIT
            self.insert_rows(chance, guards, step)  # the guards go on with the old one
            self.fence = None
            self.proxy.port = self.follower.port
            how = chance.choice(("demoted", "killed", "demoted, its connections closed"))
            if how != "killed":
                primary.replicaof("127.0.0.1", self.follower.port)
        if how == "killed":
            self.primary.restart()
        elif how != "demoted":
            self.proxy.cut()
        self.primary, self.follower = self.follower, self.primary
        self.follow()

    def pause(self, chance, guards, step):
        """Shorter or longer than an insert waits: then its key is kept for later."""
        self.primary.signal(signal.SIGSTOP)
        timer = threading.Timer(chance.choice((0.1, 0.8)), self.primary.signal, (signal.SIGCONT,))
        timer.start()
        self.addCleanup(timer.join)
        self.insert_late(guards[2], f"paused:{step}", self.database.now())

    def delete(self, chance, guards, step):
        names = ["guard:{users}", "guard:{users}:state", "guard:{users}:new"]
        with self.primary.client() as client:
            client.unlink(chance.choice(names))

    def forget(self, *_):
        with self.primary.client() as client:
            client.script_flush()

    def hold_lock(self, chance, *_):
        with self.primary.client() as client:
            client.set("guard:{users}:lock", "the dead", px=chance.choice((500, 3000)))

    def change_clocks(self, chance, *_):
        self.ahead = chance.choice((0.0, 3600.0, -100.0))
        self.database.skew = chance.choice((-0.3, 0.0, 0.3))

    def rebuild(self, chance, guards, step):
        with contextlib.suppress(redis.RedisError, TimeoutError):
            chance.choice(guards).build(self.database.keys)


for seed in SEEDS:  # a test each, so that they run at the same time
    setattr(Model, f"test_no_row_is_ever_hidden_{seed}", functools.partialmethod(Model.no_row_is_ever_hidden, seed))


if __name__ == "__main__":
    unittest.main()
