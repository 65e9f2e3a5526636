"""The guards of docs/recipes/guard.md while their server is killed, stopped, full, and short of the filter.

Each guard runs in a process of its own (guard_worker.py says what it reads and prints) and looks rows
up all the time. Whatever happens to the server, no lookup raises, and none misses a row that exists.
Afterwards the guard stops absent rows again.
"""

import asyncio
import contextlib
import itertools
import os
import pathlib
import re
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
from redis.backoff import NoBackoff
from redis.retry import Retry

import guard
import guard_asyncio
from server import Proxy, Server, until

ROOT = pathlib.Path(__file__).parents[3]
TIMEOUT = "(?i)time|late|temporarily unavailable|error on read"  # what the logs of the clients say
KEYS = (f"row:{number}" for number in itertools.count())


class Worker:
    """A guard in its process, which a thread keeps busy with rounds of lookups."""

    def __init__(self, name, command, url):
        self.name = name
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.rounds = []  # of each round: absent rows asked for, the guard's failures so far
        self.broken = None  # the first answer that no guard may give
        self.pipe = threading.Lock()
        self.ends = False
        self.thread = threading.Thread(target=self.look_up)
        self.thread.start()

    def ask(self, command):
        with self.pipe:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().strip()

    def look_up(self):
        while not self.ends and not self.broken:
            answer = self.ask("round")
            if re.fullmatch(r"\d+ \d+", answer):
                self.rounds.append(tuple(map(int, answer.split())))
                time.sleep(0.02)  # leaves the processor to the others, whose timeouts are short
            else:
                self.broken = answer or "the worker has ended"

    def wait(self, condition, what):
        """Waits until a condition on the rounds from now on is true."""
        begin = len(self.rounds) + 1  # without the round that is under way
        until(lambda: self.broken or condition(self.rounds[begin:]), f"{what} ({self.name})")
        if self.broken:
            raise AssertionError(f"{self.name}: a lookup answered {self.broken!r}\n{self.logged()}")

    def failures(self):
        return self.rounds[-1][1]

    def logged(self, begin=0):
        return os.pread(self.log.fileno(), 1 << 30, begin).decode()

    def close(self):
        self.ends = True
        self.thread.join()
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


class Guards:
    """All guards at once; they have the same rows."""

    PYTHON = "tests/clients/python/guard_worker.py"
    COMMANDS = {
        "redis-py": [sys.executable, PYTHON, "guard"],
        "redis-py asyncio": [sys.executable, PYTHON, "guard_asyncio"],
        "redis-py 4.3.4": [os.environ["PYTHON_REDIS_4"], PYTHON, "guard"],
        "redis-py 4.3.4 asyncio": [os.environ["PYTHON_REDIS_4"], PYTHON, "guard_asyncio"],
        "node-redis": ["node", "tests/clients/node/guard-worker.mjs"],
        "redis-rs": [os.environ["GUARD_WORKER_RS"]],
        "phpredis": ["php", "tests/clients/php/guard-worker.php"],
        "redigo": [os.environ["GUARD_WORKER_GO"]],
    }

    @classmethod
    def address(cls):
        """What the guards connect to."""
        return cls.server.url

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.close)
        address = cls.address()
        cls.workers = []
        for name, command in cls.COMMANDS.items():
            cls.workers.append(Worker(name, command, address))
            cls.addClassCleanup(cls.workers[-1].close)

    def setUp(self):
        self.client = self.server.client()
        self.addCleanup(self.client.close)
        self.client.flushall()
        self.build()

    def ask(self, command, expected="ok"):
        for worker in self.workers:
            self.assertRegex(worker.ask(command), f"^{expected}", worker.name)

    def insert(self, key):
        """All guards insert the row. After a restart a try may fail, on a connection from before it."""
        for worker in self.workers:
            until(lambda: worker.ask(f"insert {key}") == "ok", f"{worker.name} inserts a row")

    def build(self):
        """Each guard builds the filter, and finds it."""
        self.ask("build")
        self.guarded()

    def guarded(self):
        """Waits until no more absent rows reach the database than the error rate lets through.

        200 lookups at a rate of 0.001 let 0.2 through on average; 6 or more have a probability of
        8e-8 (Poisson).
        """
        few = lambda rounds: len(rounds) >= 10 and sum(asked for asked, _ in rounds[-10:]) <= 5
        for worker in self.workers:
            worker.wait(few, "absent rows are stopped again")

    @contextlib.contextmanager
    def unguarded(self, problem):
        """The block breaks something: then the database alone is asked, and the log names the problem."""
        before = [(worker, len(worker.logged().encode()), worker.failures()) for worker in self.workers]
        yield
        # All of the 20 absent rows of a round, in three rounds.
        open_rounds = lambda rounds: sum(asked == 20 for asked, _ in rounds) >= 3
        for worker in self.workers:
            worker.wait(open_rounds, "all lookups reach the database")
        for worker, logged, failures in before:
            until(lambda: re.search(problem, worker.logged(logged)), f"the log of {worker.name} says {problem}")
            worker.wait(lambda rounds: rounds and worker.failures() > failures, "failures are counted")


class Faults(Guards, unittest.TestCase):
    def tearDown(self):
        """Starts the server anew. Without its files: an older filter would hide the rows of this test."""
        self.server.kill()
        self.server.remove_data()
        self.server.start("--appendonly", "yes")

    def test_the_server_is_killed_and_comes_back(self):
        key = next(KEYS)
        self.insert(key)
        with self.unguarded("(?i)refused|closed|reset|connect call failed"):
            self.server.kill()
        self.ask(f"insert {next(KEYS)}", "raised")
        self.server.start("--appendonly", "yes")
        self.guarded()
        self.assertTrue(self.client.bf().exists(guard.FILTER, key))

    def test_the_server_comes_back_without_its_data(self):
        with self.unguarded("(?i)refused|closed|reset|connect call failed"):
            self.server.kill()
        with self.unguarded("no complete filter"):
            self.server.start("--appendonly", "no")
        self.insert(next(KEYS))
        self.build()

    def test_a_build_is_broken(self):
        """The old filter stays, and the other build's new one is not taken for a complete one."""
        dump = self.client.bf().scandump(guard.FILTER, 1)
        for how in ("lost", "anew", "cut"):
            for worker in self.workers:
                with self.subTest(f"{worker.name}: {how}"):
                    self.assertRegex(worker.ask(f"build {how}"), "^raised")
                    self.assertEqual(self.client.bf().scandump(guard.FILTER, 1), dump)
                    self.assertFalse(self.client.bf().exists(guard.NEW, guard.COMPLETE))
        self.guarded()
        self.build()

    def test_a_build_does_not_wait_for_ever(self):
        self.server.signal(signal.SIGSTOP)
        answers = {}
        build = lambda worker: answers.update({worker.name: worker.ask("build")})
        threads = [threading.Thread(target=build, args=(worker,), daemon=True) for worker in self.workers]
        for thread in threads:
            thread.start()
        with contextlib.suppress(AssertionError):
            until(lambda: len(answers) == len(self.workers), "the builds have failed")
        self.server.signal(signal.SIGCONT)
        for worker in self.workers:
            self.assertRegex(answers.get(worker.name, "still waits"), "^raised", worker.name)
        self.guarded()

    def test_inserts_keep_their_connection(self):
        connections = lambda: self.client.info("stats")["total_connections_received"]
        keys = [next(KEYS) for _ in range(25)]  # the same rows for all guards
        self.insert(next(KEYS))  # connections from before the server's start are replaced
        for worker in self.workers:
            before = connections()
            for key in keys:
                self.assertEqual(worker.ask(f"insert {key}"), "ok")
            # Some more may be of lookups that timed out.
            self.assertLess(connections() - before, 15, worker.name)

    def test_an_insert_that_took_too_long_writes_no_row(self):
        """The workers are stopped while they wait for an answer: a build may have read the keys meanwhile."""
        waits = lambda: [one for one in self.client.client_list() if one["cmd"] == "bf.insert" and "b" in one["flags"]]
        self.client.execute_command("CLIENT PAUSE", 60_000, "WRITE")
        answers = {}
        insert = lambda worker, key: answers.update({worker.name: worker.ask(f"insert {key}")})
        threads = [threading.Thread(target=insert, args=(worker, next(KEYS))) for worker in self.workers]
        for worker, thread in zip(self.workers, threads):
            before = len(waits())
            thread.start()
            until(lambda: len(waits()) > before or worker.name in answers, f"the insert of {worker.name} waits")
            worker.process.send_signal(signal.SIGSTOP)
        self.client.execute_command("CLIENT UNPAUSE")
        time.sleep(guard.LONGEST_INSERT - guard.LONGEST_TRANSACTION + 0.1)
        for worker, thread in zip(self.workers, threads):
            worker.process.send_signal(signal.SIGCONT)
            thread.join()
            with self.subTest(worker.name):
                self.assertRegex(answers[worker.name], "^raised")

    def test_the_server_is_loading(self):
        for number in range(0, 10_000, 1000):
            self.client.mset({f"other:{number + i}": "value" for i in range(1000)})
        self.client.save()
        self.server.kill()
        with self.unguarded("(?i)loading"):
            # 0.5 ms a key, and a look at the clients every few keys.
            delays = ["--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"]
            self.server.start("--appendonly", "no", *delays, wait=False)
        until(self.server.is_ready, "it has loaded")
        self.guarded()

    def test_the_server_stops_answering(self):
        before = [(worker, len(worker.rounds), worker.failures()) for worker in self.workers]
        with self.unguarded(TIMEOUT):
            self.server.signal(signal.SIGSTOP)
        for worker, rounds, failures in before:
            # A guard that asked each time would fail 25 times a round.
            lookups = 25 * (len(worker.rounds) - rounds)
            self.assertLess(worker.failures() - failures, lookups / 2, f"{worker.name} asks each time")
        self.server.signal(signal.SIGCONT)
        self.guarded()

    def test_the_clients_are_paused(self):
        with self.unguarded(TIMEOUT):
            self.client.execute_command("CLIENT PAUSE", 3000, "ALL")
        self.guarded()

    def test_the_filter_is_lost(self):
        with self.unguarded("no complete filter"):
            self.client.unlink(guard.FILTER)
        self.insert(next(KEYS))
        self.assertFalse(self.client.exists(guard.FILTER), "an insert makes no filter")
        # As a client does that uses BF.ADD in place of BF.INSERT NOCREATE.
        with self.unguarded("no complete filter"):
            self.client.bf().add(guard.FILTER, "user:new")
        self.build()

    def test_the_filter_is_evicted(self):
        with self.unguarded("no complete filter"):
            self.client.config_set("maxmemory-policy", "allkeys-lru")
            self.client.config_set("maxmemory", 1)
            until(lambda: not self.client.exists(guard.FILTER), "it is evicted")
        self.client.config_set("maxmemory", 0)
        self.client.config_set("maxmemory-policy", "noeviction")
        self.build()

    def test_the_memory_is_full(self):
        key = next(KEYS)
        self.client.config_set("maxmemory", 1)
        self.ask(f"insert {key}", "raised")
        self.ask("build", "raised")
        self.guarded()  # questions need no memory
        self.client.config_set("maxmemory", 0)
        self.insert(key)
        self.guarded()

    def test_the_filter_is_full(self):
        """The error is inside an array, where some clients hide it."""
        with self.unguarded("no complete filter"):
            self.client.unlink(guard.FILTER)
            self.client.bf().create(guard.FILTER, 1e-6, 1, noScale=True)
            self.client.bf().add(guard.FILTER, "item")
        self.ask(f"insert {next(KEYS)}", "raised")

    def test_the_filter_is_half_loaded(self):
        chunk = self.client.bf().scandump(guard.FILTER, 0)
        with self.unguarded("is being loaded"):
            self.client.unlink(guard.FILTER)
            self.client.bf().loadchunk(guard.FILTER, *chunk)

    def test_the_key_has_another_type(self):
        with self.unguarded("(?i)wrong kind of value"):
            self.client.set(guard.FILTER, "text")

    def test_the_permission_is_missing(self):
        with self.unguarded("(?i)permission"):
            self.client.execute_command("ACL SETUSER default -bf.mexists")
        self.client.execute_command("ACL SETUSER default +@all")
        self.guarded()

    def test_missing_filters_are_errors(self):
        (setting,) = self.client.config_get("bf?missing-key-error")
        self.client.config_set(setting, "yes")
        with self.unguarded("not found"):
            self.client.unlink(guard.FILTER)


class DeadConnections(Guards, unittest.TestCase):
    @classmethod
    def address(cls):
        cls.proxy = Proxy(cls.server.port)
        cls.addClassCleanup(cls.proxy.close)
        return cls.proxy.url

    def test_connections_that_went_dead_are_replaced(self):
        """As when the machine of the server is gone and another has its address: nothing is closed."""
        with self.unguarded(TIMEOUT):
            self.proxy.freeze()
        self.guarded()


class Table(dict):
    """A database. `meanwhile` is run once, when the keys are half read."""

    insert = dict.__setitem__

    def __init__(self, meanwhile=lambda: None):
        super().__init__((f"user:{i}", f"name {i}") for i in range(3000))
        self.meanwhile = meanwhile

    def keys(self):
        for number, key in enumerate(list(super().keys())):
            if number == 1500:
                self.meanwhile()
            yield key


class Building(unittest.TestCase):
    """What happens to a server while a filter is built must not bring half a filter into use."""

    def setUp(self):
        self.server = Server()
        self.addCleanup(self.server.close)
        self.client = self.connect()

    def connect(self, timeout=10.0):
        client = guard.connect(self.server.url, timeout)
        self.addCleanup(client.close)
        return client

    def guard(self, table):
        return guard.Guard(self.connect(), self.connect(), table)

    def fails(self, meanwhile, error):
        """A build fails because of what happens meanwhile, and the filter before it stays in use."""
        before = Table()
        guard.build(self.client, before, wait=0)
        dump = self.connect().bf().scandump(guard.FILTER, 1)
        with self.assertRaises(error):
            guard.build(self.client, Table(meanwhile), wait=0)
        self.assertEqual(self.connect().bf().scandump(guard.FILTER, 1), dump)
        self.finds_all(before)

    def finds_all(self, table):
        one = self.guard(table)
        self.assertEqual([key for key in dict.keys(table) if one.lookup(key) is None], [])
        self.assertEqual(one.failures, 0)

    def test_the_filter_under_construction_is_lost(self):
        self.fails(lambda: self.client.unlink(guard.NEW), redis.ResponseError)

    def test_the_server_restarts_with_what_it_had(self):
        def restart():
            self.server.kill()
            self.server.start("--appendonly", "yes")

        self.fails(restart, redis.ConnectionError)

    def test_another_build_begins(self):
        other = lambda: (self.connect().unlink(guard.NEW), self.connect().bf().create(guard.NEW, 0.001, 120_000))
        self.fails(other, redis.ResponseError)

    def test_the_memory_ends(self):
        self.fails(lambda: self.client.config_set("maxmemory", 1), redis.RedisError)

    def test_a_snapshot_that_is_left_hides_rows(self):
        """Without `save` and AOF a server still loads a dump.rdb that is there: the page says to delete it."""
        table = Table()
        guard.build(self.client, table, wait=0)
        self.client.bgsave()
        until(lambda: not self.client.info("persistence")["rdb_bgsave_in_progress"], "it is saved")
        self.guard(table).insert("row", "value")
        self.server.kill()
        self.server.start("--appendonly", "no")
        self.assertIsNone(self.guard(table).lookup("row"))  # hidden
        self.server.kill()
        pathlib.Path(self.server.directory.name, "dump.rdb").unlink()
        self.server.start("--appendonly", "no")
        with self.assertLogs("guard"):
            self.assertEqual(self.guard(table).lookup("row"), "value")

    def test_the_time_of_an_insert_counts_from_its_beginning(self):
        """Whatever it waited for, too little may be left for the row."""
        for seconds, written in ((2.9, True), (3.1, False)):
            clock = types.SimpleNamespace(monotonic=lambda: next(ticks))
            for module in (guard, guard_asyncio):
                ticks = iter((100.0, 100.0 + seconds))
                with self.subTest(module.__name__, seconds=seconds), unittest.mock.patch.object(module, "time", clock):
                    rows = {}
                    if module is guard:
                        database = types.SimpleNamespace(insert=rows.__setitem__)
                        insert = lambda: self.guard(database).insert("row", "value")
                    else:
                        insert = lambda: asyncio.run(self.insert_asyncio(rows))
                    with contextlib.nullcontext() if written else self.assertRaises(TimeoutError):
                        insert()
                    self.assertEqual("row" in rows, written)

    async def insert_asyncio(self, rows):
        class Database:
            async def insert(self, key, value):
                rows[key] = value

        writer = guard_asyncio.connect(self.server.url, 10.0)
        try:
            await guard_asyncio.AsyncGuard(None, writer, Database()).insert("row", "value")
        finally:
            await writer.aclose()

    def build(self, table, wait):
        """Builds with the wait replaced by a function."""
        with unittest.mock.patch("guard.time", types.SimpleNamespace(sleep=wait, monotonic=time.monotonic)):
            guard.build(self.client, table)

    def test_a_row_whose_insert_began_before_the_build_is_found(self):
        """The insert has looked for the new filter, which was not there, and writes its row later."""
        table = Table()
        filters_done, go_on = threading.Event(), threading.Event()

        class Slow:
            def insert(self, key, value):
                filters_done.set()
                go_on.wait()
                table[key] = value

        thread = threading.Thread(target=self.guard(Slow()).insert, args=("row", "value"))
        thread.start()
        filters_done.wait()

        def wait(seconds):
            self.assertEqual(seconds, guard.LONGEST_INSERT)
            go_on.set()
            thread.join()

        self.build(table, wait)
        go_on.set()
        thread.join()
        self.finds_all(table)

    def test_rows_that_come_in_during_a_build_are_found(self):
        table = Table()
        guard.build(self.client, table, wait=0)
        ends = threading.Event()
        done = [0, 0, 0]  # inserts of each thread

        def insert(thread):
            one = self.guard(table)
            while not ends.is_set():
                key = f"row:{thread}:{done[thread]}"
                one.insert(key, "value")
                done[thread] += 1
                if one.lookup(key) is None:
                    done[thread] = key
                    return

        threads = [threading.Thread(target=insert, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()

        def wait(_):
            """Until the inserts that are under way have ended."""
            before = list(done)
            until(lambda: all(now != then for now, then in zip(done, before)), "the inserts have ended")

        try:
            for _ in range(10):
                self.build(table, wait)
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        self.assertTrue(all(isinstance(count, int) for count in done), f"a new row was not found: {done}")
        self.finds_all(table)

    def test_the_commands_of_the_page_are_enough_for_each_role(self):
        page = (ROOT / "docs/recipes/guard.md").read_text()
        roles = re.findall(r"^\| (reader|writer|builder) \|.*\| `([^`]*)` \|$", page, re.MULTILINE)
        self.assertEqual([role for role, _ in roles], ["reader", "writer", "builder"])
        connections = {}
        for role, commands in roles:
            rules = ["resetkeys", "~guard:{users}*", "-@all", *commands.split()]
            self.client.execute_command("ACL", "SETUSER", role, "on", ">secret", *rules)
            url = self.server.url.replace("//", f"//{role}:secret@")
            connections[role] = guard.connect(url, 10.0)
            self.addCleanup(connections[role].close)
        table = Table()
        guard.build(connections["builder"], table, wait=0)
        one = guard.Guard(connections["reader"], connections["writer"], table)
        one.insert("row", "value")
        self.assertEqual((one.lookup("row"), one.lookup("no row"), one.failures), ("value", None, 0))
        with self.assertRaises(redis.exceptions.NoPermissionError):
            guard.Guard(connections["reader"], connections["reader"], table).insert("row", "value")


class Tries(unittest.TestCase):
    """redis.Redis() of version 8 tries 11 times in 5 seconds."""

    def setUp(self):
        """A server that takes connections and never answers."""
        self.silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(self.silent.close)
        self.url = f"redis://127.0.0.1:{self.silent.getsockname()[1]}"

    def connections(self):
        self.silent.setblocking(False)
        for count in itertools.count():
            try:
                self.silent.accept()[0].close()
            except BlockingIOError:
                return count

    def check_timeouts(self, reader):
        options = reader.connection_pool.connection_kwargs
        self.assertEqual((options["socket_timeout"], options["socket_connect_timeout"]), (0.1, 0.1))

    def test_a_lookup_tries_once(self):
        reader = guard.connect(self.url, 0.1)
        self.addCleanup(reader.close)
        self.check_timeouts(reader)
        one = guard.Guard(reader, None, {"row": "value"})
        with self.assertLogs("guard"):
            self.assertEqual(one.lookup("row"), "value")
        self.assertEqual(self.connections(), 1)

    def test_an_asyncio_lookup_tries_once(self):
        class Database:
            async def get(self, key):
                return "value"

        async def look_up():
            reader = guard_asyncio.connect(self.url, 0.1)
            self.check_timeouts(reader)
            one = guard_asyncio.AsyncGuard(reader, None, Database())
            self.assertEqual(await one.lookup("row"), "value")
            await reader.aclose()

        with self.assertLogs("guard"):
            asyncio.run(look_up())
        self.assertEqual(self.connections(), 1)


class Cluster(unittest.TestCase):
    def test_the_cluster_is_down(self):
        """A node alone, with all slots, then without one, which is enough for CLUSTERDOWN."""
        server = Server("--cluster-enabled", "yes")
        self.addCleanup(server.close)
        client = server.client()
        self.addCleanup(client.close)
        client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        state = lambda: client.execute_command("CLUSTER INFO")["cluster_state"]
        until(lambda: state() == "ok", "it is up")
        timeouts = {"socket_timeout": 1.0, "socket_connect_timeout": 1.0, "retry": Retry(NoBackoff(), 0)}
        cluster = redis.RedisCluster.from_url(server.url, **timeouts)
        self.addCleanup(cluster.close)
        table = Table()
        one = guard.Guard(cluster, cluster, table)
        guard.build(client, table, wait=0)
        one.insert("row", "value")
        self.assertEqual((one.lookup("row"), one.lookup("no row"), one.failures), ("value", None, 0))
        client.execute_command("CLUSTER DELSLOTS", 0)
        until(lambda: state() == "fail", "it is down")
        with unittest.mock.patch("guard.PAUSE", 0.0), self.assertLogs("guard") as logs:
            for _ in range(3):
                self.assertEqual(one.lookup("row"), "value")
        self.assertIn("luster", logs.output[0])  # CLUSTERDOWN, or that no node has the slot
        self.assertEqual(one.failures, 3)
        with self.assertRaises(Exception):
            one.insert("other", "value")
        client.execute_command("CLUSTER ADDSLOTS", 0)
        until(lambda: state() == "ok", "it is up")
        one.resume_at = 0
        self.assertTrue(one.is_absent("no row"))


if __name__ == "__main__":
    unittest.main()
