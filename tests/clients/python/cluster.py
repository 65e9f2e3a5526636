"""A cluster with the module: three primaries, nodes 0 to 2, with one replica each, nodes 3 to 5; sharded filters in it."""

import redis
from redis.crc import key_slot
from redis_bloom.sharded import marks, shard_of

from server import Server, until

PRIMARIES = 3
SLOTS = 16384


class Node(Server):
    def __init__(self):
        super().__init__(
            "--cluster-enabled", "yes", "--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0",
            "--repl-diskless-sync-delay", "0",
        )  # fmt: skip

    def start(self, *_, wait=True):
        super().start("--appendonly", "no", wait=wait)


class Cluster:
    def __init__(self, node=Node):
        self.nodes = []
        try:
            for _ in range(2 * PRIMARIES):
                self.nodes.append(node())
            self.join()
        except BaseException:
            self.close()
            raise
        self.url = self.nodes[0].url

    def join(self):
        self.ids = [self.run(node, "CLUSTER MYID").decode() for node in self.nodes]
        for number, node in enumerate(self.nodes):
            self.run(node, "CLUSTER SET-CONFIG-EPOCH", number + 1)
            if number < PRIMARIES:
                first, end = (i * SLOTS // PRIMARIES for i in (number, number + 1))
                self.run(node, "CLUSTER ADDSLOTSRANGE", first, end - 1)
            else:
                self.run(node, "CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        for node in self.nodes[1:PRIMARIES]:
            self.run(node, "CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        for number, node in enumerate(self.nodes):
            until(lambda: self.knows_all(node), "every node knows every node")
            if number >= PRIMARIES:
                self.run(node, "CLUSTER REPLICATE", self.ids[number - PRIMARIES])
        self.wait_until_up()

    def knows_all(self, node):
        nodes = self.run(node, "CLUSTER NODES")
        return all(one in str(nodes) for one in self.ids) and "handshake" not in str(nodes)

    def wait_until_up(self):
        """Until all slots are served, and each replica has its data."""
        for node in self.nodes:
            until(lambda: self.run(node, "CLUSTER INFO")["cluster_state"] == "ok", "the cluster is up")
            until(lambda: self.is_linked(node), "the replica follows")

    def is_linked(self, node):
        info = self.run(node, "INFO", "replication")
        return info["role"] == "master" and info["connected_slaves"] > 0 or info.get("master_link_status") == "up"

    def run(self, node, *words):
        with node.client() as client:
            return client.execute_command(*words)

    def client(self):
        return redis.RedisCluster.from_url(self.url)

    def close(self):
        for node in self.nodes:
            node.close()


class Filter:
    """A sharded filter as docs/reference/sharding.md specifies it, made without the tool."""

    def __init__(self, client, name, shards, **fields):
        self.client, self.name = client, name
        self.keys = keys(name, shards, 1)
        self.reserve(self.keys)
        fields = {"rule": "crc32", "poll": 3, "error": 0.001, "capacity": 100_000, "generation": 1, **fields}
        client.hset(name, mapping={"shards": shards, **dict(enumerate(self.keys)), **fields, "state": "ready"})

    def reserve(self, keys, only=None):
        for number, key in enumerate(keys):
            if only in (None, number):
                self.client.execute_command("BF.RESERVE", key, 0.001, 100_000, "SHARD", number, len(keys))

    def load(self, keys, items, only=None):
        for number, key in enumerate(keys):
            own = [item for item in items if shard_of(item, len(keys)) == number]
            if only in (None, number) and own:
                self.client.execute_command("BF.INSERT", key, "NOCREATE", "ITEMS", *own)

    def mark(self, keys, only=None):
        self.load(keys, marks(len(keys)), only)


def keys(name, shards, generation):
    wanted = {(2 * i + 1) * SLOTS // (2 * shards): i for i in range(shards)}
    found, number = [None] * shards, 0
    while wanted:
        tag = f"{name}:{number}"
        shard = wanted.pop(key_slot(tag.encode()), None)
        if shard is not None:
            found[shard] = f"{{{tag}}}:{generation}"
        number += 1
    return found


def fields_of(keys, generation, prefix=""):
    """The fields of a descriptor that say what a generation is."""
    fields = {"shards": len(keys), "generation": generation, "error": 0.001, "capacity": 100_000, **dict(enumerate(keys))}
    return {f"{prefix}{field}": value for field, value in fields.items()}
