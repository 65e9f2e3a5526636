"""Sharded filters in the metrics, the rules and the alerts: what each node of a real cluster exports, and
which alerts Prometheus's promtool then finds. Run by scripts/test-monitoring."""

import math
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import zlib

from cluster import Cluster, wait_until
from exporter import FILES, Exporter

NAME = "urls"
# The numbers in the keys of shards 0, 1, ... of docs/reference/sharding.md.
TAGS = [25249, 3206, 4282, 43610, 7835, 79281, 29169, 48179]
SHARDS = len(TAGS)
CAPACITY = 400
STEPS = 1 << 20  # of 1, in which figures of the rules are compared: exact in binary
ITEMS = [f"item-{number}" for number in range(2000)]


def key_of(shard, generation=1):
    return f"{{{NAME}:{TAGS[shard]}}}:{generation}"


def slot_of(shard):
    return (2 * shard + 1) * 16384 // (2 * SHARDS)


def shard_of(item):
    return zlib.crc32(item.encode()) * SHARDS >> 32


class Sharded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.exporter = Exporter(sharded=f"{{{NAME} = {{{SHARDS}}}}}")
        cls.addClassCleanup(cls.exporter.__exit__)

    def setUp(self):
        for port in self.cluster.primaries():
            self.cluster.on(port, "FLUSHALL")
        self.reserve(1)
        self.describe(1)
        for shard in range(SHARDS):
            items = [item for item in ITEMS if shard_of(item) == shard]
            self.cluster.call("BF.INSERT", key_of(shard), "NOCREATE", "ITEMS", *items)

    def reserve(self, generation):
        for shard in range(SHARDS):
            self.cluster.call("BF.RESERVE", key_of(shard, generation), "0.01", str(CAPACITY), "SHARD", str(shard), str(SHARDS))

    def describe(self, generation, state="ready"):
        keys = [word for shard in range(SHARDS) for word in (str(shard), key_of(shard, generation))]
        self.cluster.call("HSET", NAME, "rule", "crc32", "poll", "10", "shards", str(SHARDS), "generation",
                          str(generation), "error", "0.01", "capacity", str(SHARDS * CAPACITY), *keys, "state", state)

    def scrape(self, exporter=None):
        """The metrics of sharded filters, of each node that is alive."""
        values = {}
        for port in filter(self.cluster.is_alive, self.cluster.ports):
            for key, value in (exporter or self.exporter).values(port).items():
                if key.startswith("bf_shard"):
                    values[port, key] = value
        return values

    def check(self, values, *, alerts=(), figures=(), hours=1):
        """Checks which alerts fire if the servers show `values` for so many hours, and the values of rules."""
        series = "".join(
            f"      - {{series: 'redis_script_values{{instance=\"{port}\", key=\"{key}\"}}', values: '{value}x{12 * hours}'}}\n"
            for (port, key), value in values.items()
        ) + f"      - {{series: 'up{{job=\"redis-bloom\"}}', values: '1x{12 * hours}'}}\n"  # Prometheus has a target
        expected = {'count by (alertname) (ALERTS{alertstate="firing"})': {
            f'{{alertname="{alert}"}}': 1 for alert in alerts
        }}
        for rule, value in dict(figures).items():
            # The last digits of a mean depend on the order of its sums: both sides are rounded alike.
            rounded = f"round(redis_bloom:shards_{rule}, {1 / STEPS})"
            expected[rounded] = {f'{{filter="{NAME}"}}': math.floor(value * STEPS + 0.5) / STEPS}
        tests = "".join(
            f"      - expr: '{expression}'\n        eval_time: {hours}h\n        exp_samples:\n"
            + "".join(f"          - {{labels: '{labels}', value: {value}}}\n" for labels, value in samples.items())
            for expression, samples in expected.items()
        )
        with tempfile.TemporaryDirectory() as directory:
            shutil.copy(FILES / "alerts.yml", directory)
            path = pathlib.Path(directory) / "test.yml"
            path.write_text(f"rule_files: [alerts.yml]\nevaluation_interval: 5m\ntests:\n  - interval: 5m\n"
                            f"    input_series:\n{series}    promql_expr_test:\n{tests}")
            done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_each_shard_is_exported_once_by_the_primary_that_has_it(self):
        values = self.scrape()
        primaries = self.cluster.primaries()
        self.assertEqual({port for port, _ in values}, set(primaries), "replicas export nothing")
        self.assertEqual(len(primaries), 3)
        keys = [key for _, key in values if key.startswith("bf_shard_")]
        self.assertEqual(len(keys), len(set(keys)))
        exported = {key: value for (_, key), value in values.items()}
        words = {"items": "ITEMS", "capacity": "CAPACITY", "layers": "FILTERS", "error": "ERROR", "fpr": "FPR"}
        for shard in range(SHARDS):
            for metric, word in words.items():
                name = f"bf_shard_{metric}:{shard}:{SHARDS}:1:{NAME}"
                shown = float(self.cluster.call("BF.INFO", key_of(shard), word))
                self.assertEqual(exported.pop(name), shown, name)
        self.assertEqual(exported, {
            f"bf_sharded_half_written:1:{NAME}": 0, f"bf_sharded_rebuilding:1:{NAME}": 0,
            f"bf_sharded_shards:1:{NAME}": SHARDS, f"bf_sharded_capacity:1:{NAME}": SHARDS * CAPACITY,
            f"bf_sharded_unwatched:0:{NAME}": 0,
        })
        # The rules unite what the nodes show.
        items = [float(self.cluster.call("BF.INFO", key_of(shard), "ITEMS")) for shard in range(SHARDS)]
        rates = [value for (_, key), value in values.items() if key.startswith("bf_shard_fpr")]
        self.check(values, figures={
            "listed": SHARDS, "seen": SHARDS, "fill": max(items) / CAPACITY, "rate": max(rates) / 0.01,
            "imbalance": max(items) / (sum(items) / SHARDS),
        })

    def test_the_role_with_the_rights_of_the_page_suffices(self):
        operations = (FILES.parents[1] / "docs/guide/operations.md").read_text()
        (role,) = re.findall(r"^ACL SETUSER monitor .*$", operations, re.MULTILINE)
        (more,) = re.findall(r"^ACL SETUSER monitor .*$", (FILES / "README.md").read_text(), re.MULTILINE)
        for port in self.cluster.ports:
            for line in (role.replace(">password", ">secret"), more):
                self.assertEqual(self.cluster.on(port, *line.split()), "OK")
            self.addCleanup(self.cluster.on, port, "ACL", "DELUSER", "monitor")
        user = {"REDIS_USER": "monitor", "REDIS_PASSWORD": "secret"}
        with Exporter(user, sharded=f"{{{NAME} = {{{SHARDS}}}}}") as exporter:
            self.assertEqual(self.scrape(exporter), self.scrape())

    def test_a_shard_that_is_deleted_or_replaced_is_lost(self):
        self.cluster.call("DEL", key_of(5))
        self.check(self.scrape(), alerts=["BloomShardLost"], figures={"seen": SHARDS - 1})
        self.cluster.call("SET", key_of(5), "a string")
        self.check(self.scrape(), alerts=["BloomShardLost"])
        # BF.MADD made it anew: not as a shard.
        self.cluster.call("DEL", key_of(5))
        self.cluster.call("BF.MADD", key_of(5), "item")
        self.check(self.scrape(), alerts=["BloomShardLost"], figures={"seen": SHARDS - 1})

    def test_a_descriptor_that_is_half_written_damaged_or_lost_is_an_alert(self):
        half_written = ["BloomDescriptorHalfWritten"]
        self.cluster.call("HSET", NAME, "state", "creating")
        self.check(self.scrape(), alerts=half_written)
        self.cluster.call("DEL", NAME)
        self.cluster.call("HSET", NAME, "state", "creating")  # the lock alone
        self.check(self.scrape(), alerts=half_written)
        self.describe(1)
        self.cluster.call("HDEL", NAME, "7")
        self.check(self.scrape(), alerts=half_written)
        self.describe(1)
        self.check(self.scrape())
        self.cluster.call("DEL", NAME)
        self.check(self.scrape(), alerts=["BloomDescriptorLost"])

    def test_numbers_out_of_their_range_are_a_damaged_descriptor(self):
        fields = {"shards": ["1025", "0", "8.5"], "generation": ["0", "1.5"], "error": ["2", "1", "0", "nan"],
                  "capacity": ["0", "0.5"]}
        # With keys for 1,025 shards, only the range is wrong.
        self.cluster.call("HSET", NAME, *(word for shard in range(SHARDS, 1025) for word in (str(shard), "x")))
        for field, values in fields.items():
            before = self.cluster.call("HGET", NAME, field)
            for value in values:
                with self.subTest(field, value=value):
                    self.cluster.call("HSET", NAME, field, value)
                    self.assertEqual(self.half_written(), 1)
            self.cluster.call("HSET", NAME, field, before)
            self.assertEqual(self.half_written(), 0)

    def test_a_poll_that_is_no_number_or_missing_is_no_damage(self):
        self.cluster.call("HSET", NAME, "poll", "often")
        self.check(self.scrape())
        self.cluster.call("HDEL", NAME, "poll")
        self.check(self.scrape())

    def half_written(self):
        (value,) = [value for (_, key), value in self.scrape().items() if key.startswith("bf_sharded_half_written")]
        return value

    def test_a_rebuild_is_an_alert_only_if_it_stays(self):
        self.reserve(2)
        self.cluster.call("HSET", NAME, "next.shards", str(SHARDS), "next.generation", "2")
        # The next generation is empty, and counts neither as uneven nor as lost.
        self.check(self.scrape(), figures={"seen": SHARDS})
        self.check(self.scrape(), alerts=["BloomRebuildUnfinished"], hours=30)
        self.cluster.call("HDEL", NAME, "next.shards", "next.generation")
        self.describe(2)
        for shard in range(SHARDS):
            self.cluster.call("SET", key_of(shard), "moved to 2")
        self.check(self.scrape(), figures={"seen": SHARDS, "fill": 0})

    def test_a_number_of_shards_that_is_not_in_the_list_is_not_called_a_loss(self):
        with Exporter(sharded=f"{{{NAME} = {{16}}}}") as exporter:
            self.check(self.scrape(exporter), alerts=["BloomShardsUnwatched"])
        with Exporter(sharded=f"{{{NAME} = {{16, {SHARDS}}}}}") as exporter:
            self.check(self.scrape(exporter))

    def test_a_slot_with_more_keys_than_the_script_looks_at_is_not_called_a_loss(self):
        # Which keys of a slot the server returns first differs: with enough others the shard is not
        # among them.
        others = [word for number in range(50) for word in (f"{{{NAME}:{TAGS[2]}}}other-{number}", "x")]
        self.cluster.call("MSET", *others)
        self.check(self.scrape())
        with Exporter(sharded=f"{{{NAME} = {{{SHARDS}}}}}", budget="1") as exporter:
            values = self.scrape(exporter)
            seen = [key for _, key in values if key.startswith("bf_shard_items")]
            unwatched = sum(value for (_, key), value in values.items() if key.startswith("bf_sharded_unwatched"))
            self.assertEqual(len(seen) + unwatched, SHARDS)
            self.check(values, alerts=["BloomShardsUnwatched"] if unwatched else [])

    def test_all_slots_of_a_scrape_share_one_budget_of_keys(self):
        for tag in TAGS:
            self.cluster.call("MSET", *(word for number in range(20) for word in (f"{{{NAME}:{tag}}}other-{number}", "x")))
        # 21 keys in each slot, and 2 or 3 shards on each node: 22 keys are enough for the first slot of
        # a node. After it one key of a slot is looked at, when the budget has ended.
        with Exporter(sharded=f"{{{NAME} = {{{SHARDS}}}}}", budget="22") as exporter:
            values = self.scrape(exporter)
        total = 0
        for port in self.cluster.primaries():
            (unwatched,) = [value for (node, key), value in values.items() if node == port and "_unwatched" in key]
            seen = [key for node, key in values if node == port and key.startswith("bf_shard_items")]
            counts = [self.cluster.on(port, "CLUSTER", "COUNTKEYSINSLOT", str(slot_of(shard))) for shard in range(SHARDS)]
            self.assertEqual(len(seen) + unwatched, sum(count != "0" for count in counts))
            self.assertGreaterEqual(len(seen), 1)
            total += unwatched
        # Which key a server returns first differs: with 20 others in each of 5 slots, that all 5 are
        # shards has a probability of 21^-5.
        self.assertGreater(total, 0)
        self.check(values, alerts=["BloomShardsUnwatched"])
        self.check(self.scrape())

    def test_a_full_and_uneven_filter_is_an_alert(self):
        room = CAPACITY - int(self.cluster.call("BF.INFO", key_of(3), "ITEMS"))
        extra = [item for item in (f"more-{number}" for number in range(4000)) if shard_of(item) == 3]
        self.cluster.call("BF.INSERT", key_of(3), "NOCREATE", "ITEMS", *extra[: room - 20])
        self.check(self.scrape(), alerts=["BloomShardNearCapacity"])
        # Uneven: with shards of more items.
        for shard in range(SHARDS):
            self.cluster.call("DEL", key_of(shard))
            self.cluster.call("BF.RESERVE", key_of(shard), "0.01", "40000", "SHARD", str(shard), str(SHARDS))
        belongs = {shard: [] for shard in range(SHARDS)}
        for number in range(110_000):
            belongs[shard_of(f"many-{number}")].append(f"many-{number}")
        for shard, all_items in belongs.items():
            for at in range(0, len(all_items), 5000):
                self.cluster.call("BF.INSERT", key_of(shard), "NOCREATE", "ITEMS", *all_items[at : at + 5000])
        self.check(self.scrape())
        hostile = [f"hostile-{number}" for number in range(40_000)]
        hostile = [item for item in hostile if shard_of(item) == 3]
        self.cluster.call("BF.INSERT", key_of(3), "NOCREATE", "ITEMS", *hostile)
        self.check(self.scrape(), alerts=["BloomShardsUneven"])

    def test_z_after_a_failover_the_new_primary_exports_the_shards(self):
        """The last test, because it ends a node."""
        before = {key for _, key in self.scrape()}
        items = self.cluster.call("BF.INFO", key_of(0), "ITEMS")
        # The node that has shard 0 and the descriptor: both have slots in the first third.
        (node,) = {port for port, key in self.scrape() if key == f"bf_shard_items:0:{SHARDS}:1:{NAME}"}
        wait_until("the replica has all", lambda: self.cluster.is_in_step(node))
        self.cluster.kill(node)
        self.check(self.scrape(), alerts=["BloomDescriptorLost"])
        wait_until("a replica is promoted", lambda: len(self.cluster.primaries()) == 3)
        wait_until("the cluster is up", lambda: {key for _, key in self.scrape()} == before)
        values = self.scrape()
        self.check(values, figures={"seen": SHARDS})
        exported = {key: value for (_, key), value in values.items()}
        self.assertEqual(exported[f"bf_shard_items:0:{SHARDS}:1:{NAME}"], float(items))


class WithoutACluster(unittest.TestCase):
    def test_one_server_exports_all_shards_that_the_descriptor_lists(self):
        from test_monitoring import redis

        redis("FLUSHALL")
        keys = [f"{{{NAME}:5968}}:1", f"{{{NAME}:1796}}:1"]
        for number, key in enumerate(keys):
            redis("BF.RESERVE", key, "0.01", "100", "SHARD", str(number), "2")
        redis("HSET", NAME, "rule", "crc32", "poll", "10", "shards", "2", "generation", "1", "error", "0.01",
              "capacity", "200", "0", keys[0], "1", keys[1], "state", "ready")
        with Exporter(sharded=f"{{{NAME} = {{2}}}}") as exporter:
            values = {key: value for key, value in exporter.values().items() if key.startswith("bf_shard")}
        self.assertEqual(values[f"bf_shard_capacity:0:2:1:{NAME}"], 100)
        self.assertEqual(values[f"bf_shard_capacity:1:2:1:{NAME}"], 100)
        self.assertEqual(values[f"bf_sharded_shards:1:{NAME}"], 2)
        self.assertEqual(values[f"bf_sharded_unwatched:0:{NAME}"], 0)


if __name__ == "__main__":
    unittest.main()
