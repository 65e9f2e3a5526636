"""A client of sharded filters, as docs/reference/sharding.md specifies them; `redis-bloom create --shards` makes them.

    from redis_bloom import ShardedFilter
    users = ShardedFilter(redis.RedisCluster(..., socket_timeout=0.1), "users")
    users.add(["user:1", "user:2"])            # if it raises, some may be missing: add them again
    users.has(["user:1", "nobody"])            # [True, False]; None: no answer that can be trusted

Rebuilds are followed. A shard that is lost, and recreated empty, answers 0 for items that were added. So "no"
is trusted only from a shard that has its mark, an item that `mark` adds after the first load. Without the
mark the answer is None. `AsyncShardedFilter` is the same for redis.asyncio.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Optional

from redis.exceptions import ResponseError

from ._steps import Key, Steps, asynchronous, bytes_of, checked, sync, text

TOO_OLD = "the descriptor is too old"
PAUSE = 1.0  # seconds after a failure in which a shard is not asked


def shard_of(item: Key, shards: int) -> int:
    """The number of the shard of an item."""
    return zlib.crc32(bytes_of(item)) * shards >> 32


def marks(shards: int) -> list[str]:
    """For each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < shards:
        item = f"filter: complete {number}"
        found.setdefault(shard_of(item, shards), item)
        number += 1
    return [found[shard] for shard in range(shards)]


class _Generation:
    """The shards of one generation: key and mark of each."""

    def __init__(self, fields: Mapping[str, Any], prefix: str = "") -> None:
        count, self.number = (int(fields[prefix + name]) for name in ("shards", "generation"))
        error, capacity = float(fields[prefix + "error"]), int(fields[prefix + "capacity"])
        if not (1 <= count <= 1024 and self.number >= 1 and 0 < error < 1 and capacity >= 1):
            raise ValueError(f"the descriptor is damaged: {dict(fields)}")
        self.shards = list(zip([fields[f"{prefix}{i}"] for i in range(count)], marks(count)))

    def group(self, items: Iterable[Key]) -> list[tuple[Key, str, list[Key]]]:
        """Key, mark and items of each shard that has some."""
        groups: dict[int, list[Key]] = {}
        for item in items:
            groups.setdefault(shard_of(item, len(self.shards)), []).append(item)
        return [(*self.shards[shard], group) for shard, group in groups.items()]


class _Descriptor:
    def __init__(self, reply: Mapping[Any, Any], read_at: float) -> None:
        self.read_at = read_at
        fields = {text(name): value for name, value in reply.items()}
        rule, state = (text(fields.get(name)) for name in ("rule", "state"))
        if (rule, state) != ("crc32", "ready"):
            raise ValueError(f"no filter that this client can use: rule {rule}, state {state}")
        self.current, self.damage = _Generation(fields), ""
        self.filled = [self.current]  # the generations that additions go to
        if any(name.startswith("next.") for name in fields):
            try:
                self.filled.append(_Generation(fields, "next."))
                if text(fields.get("next.rule", "crc32")) != "crc32" or self.filled[1].number == self.current.number:
                    raise ValueError("its rule or number")
            except (KeyError, ValueError) as error:  # a rebuild might lose what is added now
                self.damage = f"the next generation cannot be read: {error!r}"
        self.base = fields.get("base")
        poll = text(fields.get("poll", ""))
        self.poll = int(poll) if poll.isdigit() and int(poll) > 0 else 10

    def check_age(self) -> None:
        if time.monotonic() > self.read_at + 2 * self.poll:  # a rebuild counts on additions to be done by then
            raise TimeoutError(TOO_OLD)


def _is_stale(error: Exception) -> bool:
    """Whether an error may come from a descriptor that is out of date."""
    return any(words in str(error) for words in ("WRONGTYPE", "wrong kind", "belongs to shard", "not found", TOO_OLD))


class _Core:
    def __init__(self, client: Any, name: Key) -> None:
        if getattr(client, "read_from_replicas", False) or getattr(client, "load_balancing_strategy", None):
            raise ValueError("the client must not read from replicas, which may have an old descriptor")
        self._client, self._name = client, name
        self._known: Optional[_Descriptor] = None
        self._resume_at: dict[Key, float] = {}
        self.failures = 0  # how often the descriptor or a shard gave no answer: a metric to watch

    def _read(self, again: bool) -> Steps[_Descriptor]:
        now, known = time.monotonic(), self._known
        if known and not again and now - known.read_at < known.poll:
            return known
        reply = yield partial(self._client.hgetall, self._name)
        read = None  # if it cannot be used, what was read before must not be
        try:
            read = _Descriptor(reply, now)
            return read
        finally:
            if not self._known or self._known.read_at <= now:  # else another thread has read a newer one
                self._known = read

    def _fail(self, key: Key) -> None:
        self.failures += 1
        self._resume_at[key] = time.monotonic() + PAUSE

    def _has(self, items: Iterable[Key]) -> Steps[list[Optional[bool]]]:
        """True, False (certainly not added) or None (no answer that can be trusted). Never raises."""
        every = list(items)
        answers: dict[Key, Optional[bool]] = dict.fromkeys(every)
        stale = yield from self._query(list(answers), answers, False)
        if stale:
            yield from self._query(stale, answers, True)
        return [answers[item] for item in every]

    def _query(self, items: list[Key], answers: dict[Key, Optional[bool]], again: bool) -> Steps[list[Key]]:
        """Puts answers into `answers`; returns the items to query again, by a descriptor that is read again."""
        try:
            if time.monotonic() >= self._resume_at.get(self._name, 0.0):
                yield from self._read(again)
        except Exception:  # the one that was read last: its shards answer for themselves
            self._fail(self._name)
        descriptor, stale = self._known, []
        if descriptor:
            for group in descriptor.current.group(items):
                stale += yield from self._ask(*group, answers, again)
            absent = [item for item in items if answers[item] is False]
            if descriptor.base and absent:
                stale += yield from self._ask(descriptor.base, "filter: complete", absent, answers, again)
        return stale

    def _ask(
        self, key: Key, mark: str, items: list[Key], answers: dict[Key, Optional[bool]], again: bool
    ) -> Steps[list[Key]]:
        answers.update(dict.fromkeys(items))
        if time.monotonic() < self._resume_at.get(key, 0.0):
            return []
        try:
            *found, complete = checked((yield partial(self._client.execute_command, "BF.MEXISTS", key, *items, mark)))
            for item, yes in zip(items, found):
                answers[item] = bool(yes) or (False if complete else None)
            if not complete:
                self._fail(key)
        except Exception as error:
            if _is_stale(error) and not again:
                return items
            self._fail(key)
        return []

    def _add(self, items: Iterable[Key]) -> Steps[None]:
        """Adds items to their shards, and while the filter is rebuilt to those of both generations."""
        every = list(items)
        try:
            yield from self._add_once(every, False)
        except Exception as error:
            if not _is_stale(error):
                raise
            yield from self._add_once(every, True)

    def _add_once(self, items: list[Key], again: bool) -> Steps[None]:
        descriptor = yield from self._read(again)
        if descriptor.damage:
            raise ValueError(descriptor.damage)
        insert = partial(self._client.execute_command, "BF.INSERT")
        for generation in descriptor.filled:
            is_old = generation.number < descriptor.current.number  # after a rebuild, until its shards are gone
            for key, _, group in generation.group(items):
                descriptor.check_age()
                try:
                    checked((yield partial(insert, key, "NOCREATE", "ITEMS", *group)))
                except ResponseError as error:
                    if not is_old or "belongs" in str(error) or not _is_stale(error):
                        raise  # else an old shard is gone, and the current ones have the items
        descriptor.check_age()

    def _mark(self) -> Steps[None]:
        """Marks the shards as complete, after all items were added."""
        descriptor = yield from self._read(True)
        yield from self._add(marks(len(descriptor.current.shards)))


class ShardedFilter(_Core):
    """A sharded filter with redis.RedisCluster or redis.Redis."""

    add = sync(_Core._add)
    has = sync(_Core._has)
    mark = sync(_Core._mark)


class AsyncShardedFilter(_Core):
    """`ShardedFilter` for redis.asyncio: every method is a coroutine."""

    add = asynchronous(_Core._add)
    has = asynchronous(_Core._has)
    mark = asynchronous(_Core._mark)
