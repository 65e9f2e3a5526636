"""The programs of docs/guide/two-tiers.md, on the server of the tests and on a primary with a replica."""

import os
import pathlib
import tempfile
import threading
import unittest

import redis

from server import Server, until
from two_tiers import Batch, Recent, contains, host_replica

PORT = int(os.environ["REDIS_PORT"])


class RecentItems(unittest.TestCase):
    def setUp(self):
        self.asked = []
        self.filter = {b"a", b"b", b"c"}
        self.recent = Recent(lambda item: self.asked.append(item) or item in self.filter, 2)

    def test_a_yes_is_asked_for_once_and_a_no_each_time(self):
        for _ in range(3):
            self.assertTrue(self.recent.contains(b"a"))
            self.assertFalse(self.recent.contains(b"x"))
        self.assertEqual(self.asked, [b"a", b"x", b"x", b"x"])
        self.filter.add(b"x")
        self.assertTrue(self.recent.contains(b"x"), "a no is never kept")

    def test_the_item_that_was_not_asked_for_longest_is_dropped(self):
        for item in (b"a", b"b", b"a", b"c", b"a", b"b"):
            self.assertTrue(self.recent.contains(item))
        self.assertEqual(self.asked, [b"a", b"b", b"c", b"b"])


class Breaking:
    """A client whose connection breaks after its first command."""

    def __init__(self, client):
        self.client = client

    def execute_command(self, *words):
        client, self.client = self.client, None
        if client is None:
            raise redis.ConnectionError("broken")
        return client.execute_command(*words)


class Batches(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis(port=PORT)
        self.addCleanup(self.redis.close)
        self.redis.flushall()
        self.redis.bf().create("crawled", 1e-6, 100_000)
        self.hosts = [Batch(self.redis, "crawled", 50_000) for _ in range(2)]

    def test_an_item_that_two_hosts_take_is_new_to_one_of_them(self):
        one, two = self.hosts
        items = [b"item-%d" % number for number in range(25_000)]
        for host in self.hosts:
            self.assertTrue(all(host.take(item) for item in items))
            self.assertFalse(any(host.take(item) for item in items), "once in a process")
        self.assertEqual(self.redis.bf().exists("crawled", items[0]), 0, "before the flush nobody else knows")
        first = one.flush()
        second = two.flush()
        self.assertEqual((one.waiting, two.waiting), ([], []))
        # At most one of 25,000 is found by accident, but for a chance below 1e-3 (mean 0.025).
        self.assertGreaterEqual(len(first), len(items) - 1)
        self.assertEqual(second, [])
        self.assertTrue(all(self.redis.bf().mexists("crawled", *items)))

    def test_what_was_not_sent_waits(self):
        one, _ = self.hosts
        one.take(b"a")
        self.redis.rename("crawled", "elsewhere")
        with self.assertRaises(redis.ResponseError):
            one.flush()
        self.redis.rename("elsewhere", "crawled")
        self.assertEqual(one.flush(), [b"a"])

    def test_a_full_filter_keeps_what_it_has_no_room_for(self):
        self.redis.bf().create("small", 1e-6, 2, noScale=True)
        batch = Batch(self.redis, "small", 10)
        for item in (b"a", b"b", b"c"):
            batch.take(item)
        self.assertEqual(batch.flush(), [b"a", b"b"])
        with self.assertRaises(redis.ResponseError):
            batch.flush()
        self.assertEqual(batch.waiting, [b"c"])

    def test_what_was_new_before_an_error_is_returned(self):
        """The filter is full, or lost, after the first command of three."""
        items = [b"item-%d" % number for number in range(25_000)]
        for full in (True, False):
            with self.subTest(full=full):
                self.redis.unlink("small")
                self.redis.bf().create("small", 1e-6, 12_000 if full else 100_000, noScale=True)
                batch = Batch(self.redis if full else Breaking(self.redis), "small", 50_000)
                self.assertTrue(all(batch.take(item) for item in items))
                # One of the items is found by accident with a probability below 0.02 (mean 0.012).
                new = batch.flush()
                self.assertGreaterEqual(len(new), (12_000 if full else 10_000) - 1)
                self.assertTrue(set(new).isdisjoint(batch.waiting))
                self.assertIn(items[-1], batch.waiting)
                with self.assertRaises(redis.RedisError):
                    batch.flush()

    def test_threads_lose_nothing(self):
        one, _ = self.hosts
        done, new = threading.Event(), []

        def flush():
            while not done.is_set():
                new.extend(one.flush())

        flusher = threading.Thread(target=flush)
        flusher.start()
        takers = [threading.Thread(target=lambda: [one.take(b"t-%d" % number) for number in range(5000)])
                  for _ in range(4)]
        for thread in takers:
            thread.start()
        for thread in takers:
            thread.join()
        done.set()
        flusher.join()
        new.extend(one.flush())
        self.assertEqual(len(new), len(set(new)), "each item was taken once")
        self.assertTrue(all(self.redis.bf().mexists("crawled", *(b"t-%d" % number for number in range(5000)))))


class HostReplica(unittest.TestCase):
    def test_a_replica_answers_over_its_unix_socket_and_the_primary_what_it_lacks(self):
        for cluster in (False, True):
            with self.subTest(cluster=cluster), tempfile.TemporaryDirectory() as directory:
                self.check(str(pathlib.Path(directory, "socket")), cluster)

    def check(self, socket, cluster):
        options = ["--cluster-enabled", "yes"] if cluster else []
        primary = Server(*options)
        self.addCleanup(primary.close)
        near = Server(*options, "--unixsocket", socket)
        self.addCleanup(near.close)
        client = primary.client()
        self.addCleanup(client.close)
        with near.client() as admin:
            admin.config_set("appendonly", "no")  # else a child writes into the directory that close() removes
        if cluster:
            client.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
            client.execute_command("CLUSTER MEET", "127.0.0.1", near.port)
            name = client.execute_command("CLUSTER MYID")
            with near.client() as admin:
                until(lambda: self.replicates(admin, name), "the replica knows its primary")
            until(lambda: client.cluster("info")["cluster_state"] == "ok", "the cluster is up")
        else:
            with near.client() as admin:
                admin.replicaof("127.0.0.1", primary.port)
        until(lambda: client.info("replication")["connected_slaves"] == 1, "the replica is linked")
        replica = host_replica(socket, cluster)
        self.addCleanup(replica.close)
        client.bf().create("users", 0.001, 1000)
        client.bf().add("users", "user:1")
        client.wait(1, 60_000)
        until(lambda: replica.info("replication")["master_link_status"] == "up", "the link is up")
        self.assertEqual(replica.bf().exists("users", "user:1"), 1)
        if not cluster:
            replica.replicaof("NO", "ONE")  # it no longer gets what the primary adds
            client.bf().add("users", "user:2")
            self.assertEqual(replica.bf().exists("users", "user:2"), 0)
            self.assertTrue(contains(replica, client, "users", "user:2"))
        self.assertFalse(contains(replica, client, "users", "nobody"))

    @staticmethod
    def replicates(admin, name):
        try:
            return admin.execute_command("CLUSTER REPLICATE", name)
        except redis.ResponseError:
            return False


if __name__ == "__main__":
    unittest.main()
