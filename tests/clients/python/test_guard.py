"""The guards of clients, and the examples there, while their server is killed, stopped, full, and short of the filter.

Each guard runs in a process of its own (guard_worker.py says what it reads and prints) and looks rows
up all the time. Whatever happens to the server, no lookup raises, and none misses a row that exists.
Afterwards the guard stops absent rows again.
"""

import contextlib
import itertools
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import redis

from server import Proxy, Server, until

ROOT = pathlib.Path(__file__).parents[3]
FILTER, NEW = "guard:{users}", "guard:{users}:new"
DOWN = "(?i)refused|closed|reset|error 111|no reply|offline"  # "error 111" is redis-py 4.3.4 asyncio
LOST = "no complete filter|not trusted"
TIMEOUT = "(?i)time|late|no reply|temporarily unavailable|error on read"  # what the logs of the clients say
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "clients/python/src")}  # redis-py 4 has no library installed
KEYS = (f"row:{number}" for number in itertools.count())


class Worker:
    """A guard in its process, which a thread keeps busy with rounds of lookups."""

    def __init__(self, name, command, url):
        self.name = name
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, url], cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True
        )
        self.rounds = []  # of each round: absent rows asked for, the guard's failures so far
        self.broken = None  # the first answer that no guard may give
        self.pipe = threading.RLock()
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

    def next_round(self):
        """The number of the next round, after the one that is in flight."""
        return len(self.rounds) + 1

    def wait(self, condition, what, begin=None):
        """Waits until a condition on the rounds from now on, or from `begin` on, is true."""
        begin = begin or self.next_round()
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
        """One guard, each time another, builds the filter, and all find it. After a restart a try may fail, as in `insert`."""
        worker = self.workers[0]
        self.workers.append(self.workers.pop(0))
        until(lambda: worker.ask("build") == "ok", f"{worker.name} builds")
        self.guarded()

    def guarded(self):
        """Waits until no more absent rows reach the database than the error rate lets through.

        200 lookups at a rate of 0.001 let 0.2 through on average; 6 or more have a probability of
        8e-8 (Poisson). On a busy machine lookups time out, and the rounds of the next second pass
        whole or in part: so the ten rounds that count need not follow each other.
        """

        def few(rounds):
            stopped = [asked for asked, _ in rounds if asked <= 5]
            return len(stopped) >= 10 and sum(stopped[-10:]) <= 5

        for worker in self.workers:
            worker.wait(few, "absent rows are stopped again")

    @contextlib.contextmanager
    def unguarded(self, problem):
        """The block breaks something: then the database alone is asked, and the log names the problem."""
        before = [(worker, len(worker.logged().encode()), worker.failures()) for worker in self.workers]
        yield
        # All of the 20 absent rows of a round, in three rounds. That may be over before the last guard is looked at.
        open_rounds = lambda rounds: sum(asked == 20 for asked, _ in rounds) >= 3
        for worker, begin in [(worker, worker.next_round()) for worker in self.workers]:
            worker.wait(open_rounds, "all lookups reach the database", begin)
        for worker, logged, failures in before:
            until(lambda: re.search(problem, worker.logged(logged)), f"the log of {worker.name} says {problem}")
            worker.wait(lambda rounds: rounds and worker.failures() > failures, "failures are counted")


class Libraries(Guards):
    COMPLETE = "guard: complete 1"
    PYTHON = "tests/clients/python/guard_worker.py"
    COMMANDS = {
        "redis-py": [sys.executable, PYTHON, "sync"],
        "redis-py asyncio": [sys.executable, PYTHON, "asyncio"],
        "redis-py 4.3.4": [os.environ["PYTHON_REDIS_4"], PYTHON, "sync"],
        "redis-py 4.3.4 asyncio": [os.environ["PYTHON_REDIS_4"], PYTHON, "asyncio"],
        "node-redis": ["node", "clients/node/test/guard-worker.js"],
        "redis-rs": [os.environ["GUARD_WORKER_RS"]],
    }
    BREAKS = ("lost", "anew")  # their builds survive the loss of a connection


class Examples(Guards):
    COMPLETE = "guard: complete"
    COMMANDS = {
        "phpredis": ["php", "tests/clients/php/guard-worker.php"],
        "redigo": [os.environ["GUARD_WORKER_GO"]],
        "Java without a library": ["java", "-cp", os.environ["GUARD_WORKER_JAVA"], "GuardWorker"],
    }
    BREAKS = ("lost", "anew", "cut")


class Faults:
    def tearDown(self):
        """Starts the server anew. Without its files: an older filter would hide the rows of this test."""
        self.server.kill()
        self.server.remove_data()
        self.server.start("--appendonly", "yes")

    def test_the_server_is_killed_and_comes_back(self):
        key = next(KEYS)
        self.insert(key)
        with self.unguarded(DOWN):
            self.server.kill()
        self.ask(f"insert {next(KEYS)}", "raised")
        self.server.start("--appendonly", "yes")
        self.guarded()
        self.assertTrue(self.client.bf().exists(FILTER, key))

    def test_the_server_comes_back_without_its_data(self):
        with self.unguarded(DOWN):
            self.server.kill()
        with self.unguarded(LOST):
            self.server.start("--appendonly", "no")
        self.insert(next(KEYS))
        self.build()

    def test_a_build_is_broken(self):
        """The old filter stays, and the other build's new one is not taken for a complete one."""
        dump = self.client.bf().scandump(FILTER, 1)
        for how in self.BREAKS:
            for worker in self.workers:
                with self.subTest(f"{worker.name}: {how}"):
                    self.assertRegex(worker.ask(f"build {how}"), "^raised")
                    self.assertEqual(self.client.bf().scandump(FILTER, 1), dump)
                    self.assertFalse(self.client.bf().exists(NEW, self.COMPLETE))
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
        with contextlib.ExitStack() as quiet:
            for worker in self.workers:  # no lookups: on a busy machine they time out, and connect again
                quiet.enter_context(worker.pipe)
            for worker in self.workers:
                before = connections()
                for key in keys:
                    until(lambda: worker.ask(f"insert {key}") == "ok", f"{worker.name} inserts a row")
                self.assertLess(connections() - before, 15, worker.name)

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
        with self.unguarded(LOST):
            self.client.unlink(FILTER)
        self.insert(next(KEYS))
        self.assertFalse(self.client.exists(FILTER), "an insert makes no filter")
        # As a client does that uses BF.ADD in place of BF.INSERT NOCREATE.
        with self.unguarded(LOST):
            self.client.bf().add(FILTER, "user:new")
        self.build()

    def test_the_filter_is_evicted(self):
        with self.unguarded(LOST):
            self.client.config_set("maxmemory-policy", "allkeys-lru")
            self.client.config_set("maxmemory", 1)
            until(lambda: not self.client.exists(FILTER), "it is evicted")
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
        with self.unguarded(LOST):
            self.client.unlink(FILTER)
            self.client.bf().create(FILTER, 1e-6, 1, noScale=True)
            self.client.bf().add(FILTER, "item")
        self.ask(f"insert {next(KEYS)}", "raised")

    def test_the_filter_is_half_loaded(self):
        chunk = self.client.bf().scandump(FILTER, 0)
        with self.unguarded("is being loaded"):
            self.client.unlink(FILTER)
            self.client.bf().loadchunk(FILTER, *chunk)

    def test_the_key_has_another_type(self):
        with self.unguarded("(?i)wrong kind of value"):
            self.client.set(FILTER, "text")

    def test_the_permission_is_missing(self):
        with self.unguarded("(?i)permission|can't run this command"):
            self.client.execute_command("ACL SETUSER default -bf.mexists")
        self.client.execute_command("ACL SETUSER default +@all")
        self.guarded()

    def test_missing_filters_are_errors(self):
        (setting,) = self.client.config_get("bf?missing-key-error")
        self.client.config_set(setting, "yes")
        with self.unguarded("not found"):
            self.client.unlink(FILTER)


class LibraryFaults(Faults, Libraries, unittest.TestCase):
    pass


class ExampleFaults(Faults, Examples, unittest.TestCase):
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
        time.sleep(3.1)  # LONGEST_INSERT - LONGEST_TRANSACTION
        for worker, thread in zip(self.workers, threads):
            worker.process.send_signal(signal.SIGCONT)
            thread.join()
            with self.subTest(worker.name):
                self.assertRegex(answers[worker.name], "^raised")


class DeadConnections:
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


class LibraryDeadConnections(DeadConnections, Libraries, unittest.TestCase):
    pass


class ExampleDeadConnections(DeadConnections, Examples, unittest.TestCase):
    pass


if __name__ == "__main__":
    unittest.main()
