"""ShardedFilter and Seen of clients/python on a server of this file, under random orders of everything that happens.

Each command of each client runs at a time of its own, and may be lost, or its reply. In between the filter is
rebuilt, as docs/reference/sharding.md says, rebuilds are given up, shards and the descriptor are lost and mended. The sets of
this server are exact, so `False` means that the item is not there: no item is hidden after its addition was answered.
"""

import os
import random
import unittest
import unittest.mock

import redis
from redis_bloom import Seen, ShardedFilter
from redis_bloom.sharded import marks, shard_of

from cluster import fields_of, keys

SEEDS = range(int(os.environ.get("MODEL_SEEDS", 30)))
POLL = 10
NAME = "urls"


class World:
    """A server and its clock."""

    def __init__(self, chance):
        self.chance, self.now = chance, 1000.0
        self.filters = {}  # by key: its items, or the text of a tombstone
        self.shards = {}  # by key: number and count
        self.fields = {}
        self.claims = {}  # by key: when the claim ends
        self.faults = 0.05

    # --- What a client calls ---

    def lost(self, do, *words):
        """Runs a command, but may lose it or its reply."""
        how = self.chance.random()
        if how < self.faults / 2:
            raise redis.ConnectionError("lost")
        result = do(*words)
        if how < self.faults:
            raise redis.ConnectionError("the reply is lost")
        return result

    def hgetall(self, _):
        read = lambda: {field.encode(): str(value).encode() for field, value in self.fields.items()}
        return self.lost(read)

    def execute_command(self, command, key, *words):
        return self.lost(getattr(self, command.replace("BF.", "").lower()), key, *words)

    def insert(self, key, *words):
        items = words[words.index("ITEMS") + 1 :]
        held = self.filters.get(key)
        if held is None and "NOCREATE" in words:
            raise redis.ResponseError("not found")
        if isinstance(held, str):
            raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
        held = self.filters.setdefault(key, {})
        self.check_shard(key, items)
        return [0 if held.setdefault(item, self.now) != self.now else 1 for item in items]

    def mexists(self, key, *items):
        held = self.filters.get(key, {})
        if isinstance(held, str):
            raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value")
        self.check_shard(key, items)
        return [int(item in held) for item in items]

    def check_shard(self, key, items):
        number, count = self.shards.get(key, (0, 1))
        if not all(shard_of(item, count) == number for item in items):
            raise redis.ResponseError(f"item belongs to shard ? of {count}")

    def unlink(self, key):
        self.claims.pop(key, None)

    def pipeline(self, transaction):
        return Claims(self)

    # --- Shards ---

    def reserve(self, count, generation):
        found = [key.encode() for key in keys(NAME, count, generation)]
        for number, key in enumerate(found):
            self.filters[key], self.shards[key] = {}, (number, count)
        return found

    def load(self, items):
        """Adds the items of a source, and the marks, to the shards with these keys."""

        def into(shards):
            for item in [*items, *marks(len(shards))]:
                self.filters[shards[shard_of(item, len(shards))]][item] = self.now

        return into


class Claims:
    """A pipeline of SET NX PX."""

    def __init__(self, world):
        self.world, self.commands = world, []

    def set(self, key, _, nx, px):
        self.commands.append((key, px))

    def execute(self, raise_on_error):
        return self.world.lost(lambda: [self.claim(*command) for command in self.commands])

    def claim(self, key, px):
        if self.world.claims.get(key, 0) > self.world.now:
            return None
        self.world.claims[key] = self.world.now + px / 1000
        return True


class Model(unittest.TestCase):
    def setUp(self):
        clock = unittest.mock.patch("redis_bloom.sharded.time.monotonic", lambda: self.world.now)
        clock.start()
        self.addCleanup(clock.stop)

    def run_actors(self, actors, steps):
        """Each step, one of the actors runs up to its next command, or waits until its time has come."""
        due = dict.fromkeys(actors, 0.0)
        for _ in range(steps):
            self.world.now += self.chance.choice((0.001, 0.01, 0.1, 0.5, 2.0))
            ready = [actor for actor, at in due.items() if at <= self.world.now]
            if ready:
                actor = self.chance.choice(ready)
                due[actor] = self.world.now + (next(actor) or 0.0)

    def commands(self, steps):
        """An actor's part: the steps of a method, each at a time of its own. Returns the result, or the error."""
        try:
            step = next(steps)
            while True:
                yield self.chance.choice((0, 0, 0, 0.3, 3.0, 25.0))
                try:
                    result = step()
                except redis.RedisError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value
        except (redis.RedisError, ValueError, TimeoutError, KeyError) as error:
            return error


class Sharded(Model):
    def test_no_item_is_hidden_after_its_addition(self):
        done = {"added": 0, "absent": 0, "rebuilt": 0, "given up": 0}
        for seed in SEEDS:
            with self.subTest(seed=seed):
                self.chance = random.Random(seed)
                self.world = World(self.chance)
                self.done, self.added = done, set()
                self.begin()
                self.run_actors([self.keeper(), *(self.client(number) for number in range(4))], 1500)
        self.assertGreater(min(done.values()), len(SEEDS) // 4, done)

    def begin(self):
        world, count = self.world, self.chance.choice((1, 2, 3))
        self.generation, self.shards = 1, world.reserve(count, 1)
        world.load(())(self.shards)
        world.fields = {**fields_of(keys(NAME, count, 1), 1), "rule": "crc32", "state": "ready", "poll": POLL}
        if self.chance.random() < 0.5:
            self.added = {f"base:{number}" for number in range(20)}
            world.filters[b"base"] = dict.fromkeys([*self.added, "filter: complete"], world.now)
            world.fields["base"] = "base"

    def client(self, name):
        one, number = ShardedFilter(self.world, NAME), 0
        while True:
            if self.chance.random() < 0.5:
                items = [f"{name}:{number + i}" for i in range(self.chance.choice((1, 3, 10)))]
                number += len(items)
                if (yield from self.commands(one._add(items))) is None:
                    self.added.update(items)
                    self.done["added"] += 1
            else:
                expected = set(self.added)
                items = self.chance.sample(sorted(expected), min(len(expected), 10))
                answers = yield from self.commands(one._has([*items, "absent"]))
                hidden = [item for item, answer in zip(items, answers) if answer is False]
                self.assertEqual(hidden, [], f"at {self.world.now}, {self.world.fields}")
                self.assertIsNot(answers[-1], True)
                self.done["absent"] += answers[-1] is False
            yield self.chance.choice((0, 0, 5.0, 40.0))

    def keeper(self):
        """Whoever rebuilds and mends the filter; nobody else writes the descriptor."""
        while True:
            yield self.chance.choice((1.0, 20.0))
            yield from self.chance.choice((self.rebuild, self.rebuild, self.lose_shard, self.lose_descriptor))()

    def rebuild(self):
        world, old, old_generation = self.world, self.shards, self.generation
        self.generation += 1
        count = self.chance.choice((1, 2, 4))
        new = world.reserve(count, self.generation)
        before = {name: value for name, value in world.fields.items() if not name.startswith("next.")}
        after = fields_of([key.decode() for key in new], self.generation)
        world.fields = {**before, **{f"next.{name}": value for name, value in after.items()}}
        yield 2 * POLL
        if self.chance.random() < 0.3:
            world.fields = before
            yield 2 * POLL
            world.filters.update(dict.fromkeys(new, "given up"))
            self.done["given up"] += 1
            return
        source = world.load(set(self.added))
        yield self.chance.choice((0.1, 30.0))
        source(new)
        now = fields_of([key.decode() for key in old], old_generation)
        head = {"rule": "crc32", "state": "ready", "poll": POLL}
        world.fields = {**head, **after, **{f"next.{name}": value for name, value in now.items()}}
        self.shards = new
        yield self.chance.choice((0, 2 * POLL))
        for key in old:
            world.filters[key] = f"moved to {self.generation}"
            yield self.chance.choice((0, 0, 3.0))
        world.fields = {**head, **after}
        world.filters.pop(b"base", None)
        self.done["rebuilt"] += 1

    def lose_shard(self):
        """A shard is lost, made anew by hand without its items, and has them again, from a copy."""
        key = self.chance.choice(self.shards)
        lost = self.world.filters.pop(key)
        yield self.chance.choice((0.1, 15.0))
        self.world.filters[key] = {}
        yield self.chance.choice((0.1, 15.0))
        self.world.filters[key].update(lost)

    def lose_descriptor(self):
        fields = self.world.fields
        self.world.fields = self.chance.choice(({}, {"state": "creating"}, {**fields, "next.shards": 1}))
        yield self.chance.choice((0.1, 15.0))
        self.world.fields = fields


class SeenOnce(Model):
    LEASE = 600.0

    def test_what_is_done_is_never_claimed_again_and_what_is_claimed_by_one_only(self):
        finished = 0
        for seed in SEEDS:
            with self.subTest(seed=seed):
                self.chance = random.Random(seed)
                self.world = World(self.chance)
                self.owners, self.finished = {}, set()
                self.run_actors([self.crawler() for _ in range(4)], 1000)
                finished += len(self.finished)
        self.assertGreater(finished, 10 * len(SEEDS))

    def crawler(self):
        seen = Seen(self.world, "pages", capacity=1000, lease=self.LEASE)
        while True:
            before, begin = set(self.finished), self.world.now
            mine = yield from self.commands(seen._claim([f"page:{self.chance.randrange(60)}" for _ in range(5)]))
            if isinstance(mine, Exception):  # what it claimed is free after the lease
                continue
            self.assertEqual(before & set(mine), set(), "it was done before")
            for page in mine:
                self.assertLessEqual(self.owners.get(page, 0.0), begin + 100, "somebody else has it")
                self.owners[page] = begin + self.LEASE
            for page in mine:
                end = seen._release(page) if self.chance.random() < 0.2 else seen._done(page)
                is_done = "done" in end.__qualname__
                if (yield from self.commands(end)) is None and is_done:
                    self.finished.add(page)
                self.owners[page] = 0.0


if __name__ == "__main__":
    unittest.main()
