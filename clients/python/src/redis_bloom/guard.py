"""A guard in front of a database: a Bloom filter of all keys, asked before the database is.

    from redis_bloom import Guard
    guard = Guard(redis.Redis(), "users", capacity=1_000_000, error=0.001, catch_up=rows_since)
    guard.build(all_keys)                  # in a job; lookups trust the filter from then on
    guard.insert(key); db.insert(row)      # in this order
    row = guard.lookup(key, db.get)        # None, without the database, if the key is certainly absent

Without an answer that it can trust, `lookup` calls the database. `rows_since(when)` yields the keys of all rows
written since `when`, a datetime in UTC, from the primary database. `AsyncGuard` is the same for redis.asyncio.

What the caller must do:

- `insert` the key first, then write the row, which commits within `commit_within` seconds of the call
  of `insert` or never. If `insert` raises, do not write the row.
- Less than `margin` seconds pass from the timestamp of a row to the call of `insert`, by the clocks of
  the database and of the Redis server.
- After a failover, the old primary takes no insert for longer than `commit_within` (Redis Cluster;
  with Sentinel set `min-replicas-to-write 1`, `min-replicas-max-lag 2`).
- After `RESTORE` or `BF.LOADCHUNK` of an older filter under the guard's keys: run `build`.
- Rows written past the guard are hidden until the next catch-up. With `refresh=60` one runs every minute.

docs/internals/guard.md has the protocol, and why it is right.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import threading
import time
import uuid
from collections.abc import AsyncIterable, Awaitable, Iterable
from dataclasses import dataclass
from functools import partial
from hashlib import sha1
from importlib import resources
from typing import Any, Callable, Literal, Optional, TypeVar, Union

from redis.exceptions import ConnectionError, NoScriptError, ReadOnlyError

from ._steps import K, Key, Steps, asynchronous, batches, bytes_of, checked, run, run_async, sync, text, with_timeout
from .bulk import pack

Row = TypeVar("Row")
Keys = Union[Iterable[Key], AsyncIterable[Key]]
RowsSince = Callable[[datetime.datetime], Union[Keys, Awaitable[Keys]]]

BATCH = 1000
PAUSE = 1.0  # seconds after a failed lookup in which only the database is asked
VERIFY = 1.0  # seconds without a lookup after which the next one first compares the identity of the server again
KEPT = 100  # connections that lookups keep; more are made and ended if more lookups run at the same time
TICK = 1.0  # seconds between two heartbeats
CLOSE = 2.0  # seconds that `close` waits for the background, whose `catch_up` may hang
STALE = 60.0  # seconds without news of a process with keys for later, until a catch-up adds its rows

log = logging.getLogger("redis_bloom.guard")

_PARTS = resources.files(__package__).joinpath("guard.lua").read_text().split("\n--- ")[1:]
_LUA = dict(part.split("\n", 1) for part in _PARTS)  # by the names of the scripts


def script(name: str) -> str:
    return _LUA["common"] + _LUA[name]


def lookup_script(token: str) -> str:
    return _LUA["lookup"].replace("TOKEN", token)


@dataclass
class Stats:
    """What happened so far in this process. Threads may lose a count now and then."""

    saved: int = 0
    """Lookups of absent rows that did not reach the database."""
    passed: int = 0
    """Keys for which the database was asked."""
    lookup_failures: int = 0
    """How often the filter gave no answer that could be trusted; it is not queried in the second after."""
    insert_failures: int = 0
    """Inserts that the filter did not take, whether they raised or wait for later."""
    late: int = 0
    """Keys that were added later."""
    catch_ups: int = 0
    catch_up_failures: int = 0
    builds: int = 0


class _Core:
    """The guard without input and output: `Guard` and `AsyncGuard` run its steps."""

    _sleep: Callable[[float], Any]
    _start: Callable[[], None]
    _background: Any = None  # the thread or the task, once it was started

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        capacity: int,
        error: float = 0.001,
        catch_up: Optional[RowsSince] = None,
        on_unavailable: Literal["raise", "later"] = "raise",
        timeout: float = 0.1,
        insert_timeout: float = 1.0,
        commit_within: float = 5.0,
        margin: float = 60.0,
        refresh: float = 0.0,
    ) -> None:
        if not name or on_unavailable not in ("raise", "later"):
            raise ValueError("a guard needs a name, and on_unavailable is 'raise' or 'later'")
        if catch_up is None and (refresh or on_unavailable == "later"):
            raise ValueError("refresh and on_unavailable='later' need catch_up")
        self.filter = f"guard:{{{name}}}"
        self._keys = [self.filter + end for end in ("", ":state", ":new", ":lock")]
        self.stats = Stats()
        self._capacity, self._error, self._rows_since = capacity, error, catch_up
        self._later, self._refresh = on_unavailable == "later", refresh
        self._commit_within, self._margin = commit_within, margin
        self._lease = (
            int((2 * commit_within + 30) * 1000) if catch_up else 0
        )  # milliseconds of the lock; 0: no catch-up
        self._given = client
        self._reader = with_timeout(client, timeout)
        self._writer = with_timeout(client, insert_timeout)
        self._builder = with_timeout(client, max(10.0, insert_timeout))
        self._process, self._kept = os.getpid(), list[Any]()  # connections of lookups, none of them in use
        self._id = uuid.uuid4().hex
        self._token = self._sha = self._lost = ""
        self._resume_at = self._verify_at = 0.0
        self._log_at: dict[str, float] = {}  # by kind, so that the background does not hide what lookups say
        self._known = False  # whether keys may wait: the server knows of this guard with on_unavailable="later"
        self._waiting: dict[bytes, None] = {}  # the keys for later
        self._ends, self._starting = threading.Event(), threading.Lock()  # of the thread

    def _after_fork(self) -> None:
        """Gives a forked process its own connections, thread and name."""
        if self._process != os.getpid():
            self._kept, self._known, self._id = [], False, uuid.uuid4().hex
            self._background, self._starting = None, threading.Lock()
            ends, self._ends = self._ends, threading.Event()  # the old one has a lock, which a thread may have had
            if ends.is_set():
                self._ends.set()
            self._process = os.getpid()

    def _possible(self, keys: list[K]) -> Steps[list[K]]:
        """The keys whose rows may exist. Never raises."""
        self._after_fork()
        self._start()
        possible, now = keys, time.monotonic()
        if keys and now >= self._resume_at:
            try:
                every = [bytes_of(key) for key in keys]  # what `insert` sends, whatever the client's encoding
                # Before the query: afterwards the background may have added a key that the query missed.
                late = self._waiting.keys() & every if self._waiting else ()
                if not self._token or now > self._verify_at:
                    yield from self._verify()
                found = ""
                for start in range(0, len(keys), BATCH):
                    words = (self._sha, 2, *self._keys[:2], *every[start : start + BATCH])
                    reply = yield from self._ask("EVALSHA", *words)
                    if reply is None:
                        raise LookupError("the filter is not trusted")
                    found += text(reply)
                possible = [key for key, word, digit in zip(keys, every, found) if digit != "0" or word in late]
                self._verify_at = now + VERIFY
            except Exception as error:  # whatever it is, the database is asked
                if isinstance(error, NoScriptError):
                    self._lost = self._token or self._lost  # empty: another lookup was first
                self._token = ""
                self._resume_at = time.monotonic() + PAUSE
                self.stats.lookup_failures += 1
                self._warn("the filter gave no answer", error)
        self.stats.passed += len(possible)
        self.stats.saved += len(keys) - len(possible)
        return possible

    def _verify(self) -> Steps[None]:
        """Learns the token, or makes a new one if the server has forgotten the script of the last one."""
        words = ("EVAL", lookup_script(""), 2, *self._keys[:2])
        try:
            reply = yield from self._ask(*words)
        except ConnectionError:  # perhaps the server closed it because nothing happened on it
            reply = yield from self._ask(*words)
        _, token = map(text, reply)
        if token and token == self._lost:
            token = yield from self._trust(self._reader, "", "", "")
        if not token:
            raise LookupError("the filter is not trusted, or there is none")
        self._sha, self._token = sha1(lookup_script(token).encode()).hexdigest(), token

    def _ask(self, *words: Any) -> Steps[Any]:
        """The reply to a lookup, on a connection that lookups keep: redis-py's pool costs more than the command."""
        if self._reader is self._given:
            return (yield partial(self._reader.execute_command, *words))
        try:
            connection = self._kept.pop()
        except IndexError:
            pool = self._reader.connection_pool
            connection = pool.connection_class(**pool.connection_kwargs)
        try:
            yield partial(connection.send_command, *words)
            reply = yield connection.read_response
        except Exception:  # the others may be broken, too, or lead to a server that is no primary any more
            yield from self._drop(connection)
            raise
        if len(self._kept) < KEPT:
            self._kept.append(connection)  # only now: a late reply must not be taken for the next one
        else:
            with contextlib.suppress(Exception):
                yield connection.disconnect
        return reply

    def _drop(self, *connections: Any) -> Steps[None]:
        """Ends these connections and those that lookups keep."""
        kept, self._kept = self._kept, []
        for connection in (*connections, *kept):
            with contextlib.suppress(Exception):
                yield connection.disconnect

    def _insert(self, *keys: Key) -> Steps[None]:
        """Adds keys before their rows are written. If it raises, do not write them: try again."""
        self._after_fork()
        self._start()
        begin = time.monotonic()
        try:
            yield from self._add([bytes_of(key) for key in keys])
            if time.monotonic() - begin > self._commit_within / 2:
                raise TimeoutError("the filter took so long that a catch-up may miss the row")
        except Exception as error:
            self.stats.insert_failures += 1
            if not self._known:
                raise
            self._waiting.update((bytes_of(key), None) for key in keys)
            if self._ends.is_set():  # `close` may have added the last late keys before
                raise
            self._warn("the filter takes keys later", error)

    def _add(self, keys: list[bytes]) -> Steps[set[str]]:
        """Adds keys to the filters that exist; returns the identities of the servers that took them."""
        servers = set()
        for start in range(0, len(keys), BATCH):
            batch = keys[start : start + BATCH]
            servers.add(text((yield from self._script(self._writer, script("insert"), 3, *batch))))
        return servers

    def _build(self, keys: Union[Keys, Callable[[], Keys]]) -> Steps[None]:
        """Fills a new filter with all keys and puts it in the place of the old one. If it raises, the old one stays.

        An iterable must read the database when it is iterated, not before: for a list pass a function that
        makes it. Run it again before the filter holds more than `capacity`, or if many rows were deleted.
        """
        self._after_fork()
        words = (repr(self._error), self._capacity, int(time.time() * 1000))
        server, own, begin = map(text, (yield from self._script(self._builder, script("reserve"), 3, *words)))
        yield partial(self._sleep, self._commit_within)  # from here on each row is in `keys` or its key in the filter
        next_batch = batches((yield keys) if callable(keys) else keys, BATCH)
        send = partial(self._builder.execute_command, "BF.BULKADD", self._keys[2], "NOCREATE", NEVER_DECODE=True)
        while batch := (yield next_batch):
            checked((yield partial(send, "LENGTHS", pack(batch))))
        yield from self._trust(self._builder, server, begin, own)
        self.stats.builds += 1
        self._resume_at = 0.0

    def _tick(self) -> Steps[None]:
        """The work of the background, now: late keys, the heartbeat, and a catch-up if one is due."""
        self._after_fork()
        clock = int(time.time() * 1000)  # before `waiting` is read: a key that comes later is not covered
        waiting = list(self._waiting)
        servers = (yield from self._add(waiting)) or ({"all"} if self._later else {""})
        covers = servers.pop() if len(servers) == 1 else ""
        words = (clock, self._id, covers, int(STALE * 1000), int(self._refresh * 1000), self._lease)
        state, vouched, *found = yield from self._script(self._writer, script("tick"), 4, *words)
        if text(state) == "no primary":
            self._token = ""
            yield from self._leave(self._writer)
        if vouched:
            self._known = True
            for key in waiting:
                self._waiting.pop(key, None)
            self.stats.late += len(waiting)
        if found:
            try:
                yield from self._catch_up(*map(text, found))
            except Exception:
                self.stats.catch_up_failures += 1
                raise

    def _catch_up(self, server: str, since: str, begin: str) -> Steps[None]:
        """Adds the keys of the rows that the filter may lack, and trusts it."""
        assert self._rows_since
        seconds = float(since) / 1000 - self._margin - self._commit_within  # in which an insert may be in flight
        when = datetime.datetime.fromtimestamp(max(seconds, 0.0), datetime.timezone.utc)
        log.warning("the filter may lack keys since %s: catching up", when)
        yield partial(self._sleep, 2 * self._commit_within)
        next_batch = batches((yield partial(self._rows_since, when)), BATCH)
        while batch := (yield next_batch):
            yield from self._add([bytes_of(key) for key in batch])
            yield partial(self._writer.execute_command, "SET", self._keys[3], self._id, "XX", "PX", self._lease)
        yield from self._trust(self._writer, server, begin, "")
        self.stats.catch_ups += 1
        self._resume_at = 0.0

    def _trust(self, client: Any, server: str, begin: str, own: str) -> Steps[str]:
        """Marks the filter as trusted, by a script that this server process alone has: a new one if `server` is ''."""
        process, token = yield from self._script(client, lookup_script(""), 2)
        if not (server and token):
            token = uuid.uuid4().hex
            process, _ = yield from self._script(client, lookup_script(token), 2)
        words = (server, begin, self._id, own, token, process)
        return text((yield from self._script(client, script("trust"), 4, *words)))

    def _script(self, client: Any, script: str, keys: int, *words: Any) -> Steps[Any]:
        try:
            return (yield partial(client.execute_command, "EVAL", script, keys, *self._keys[:keys], *words))
        except ReadOnlyError:
            yield from self._leave(client)
            raise

    def _leave(self, client: Any) -> Steps[None]:
        """Ends connections to a server that is no primary any more: the next ones may reach the new one."""
        if pool := getattr(client, "connection_pool", None):
            yield partial(pool.disconnect, inuse_connections=False)

    def _work(self) -> Steps[None]:
        """The background, until the guard is closed."""
        with contextlib.suppress(RuntimeError):
            while not self._ends.is_set():
                try:
                    yield from self._tick()
                except Exception as error:
                    self._warn("the background of the guard failed", error)
                yield partial(self._sleep, TICK)

    def _end(self) -> Steps[None]:
        """Adds late keys if the server is there, and ends the connections."""
        try:
            if self._rows_since:
                self._lease = 0  # no catch-up now: the others would wait for it
                yield from self._tick()
            if self._known and not self._waiting:
                yield partial(self._writer.execute_command, "HDEL", self._keys[1], f"late:{self._id}")
        except Exception as error:
            log.warning("%d keys were not added: %s", len(self._waiting), error)
        yield from self._drop()
        for client in (self._reader, self._writer, self._builder):
            if client is not self._given:
                yield client.connection_pool.disconnect

    def _warn(self, what: str, error: Exception) -> None:
        """Logs each kind at most once a second."""
        if time.monotonic() >= self._log_at.get(what, 0.0):
            self._log_at[what] = time.monotonic() + 1.0
            log.warning("%s: %s: %s", what, type(error).__name__, error)  # repr() has no message in redis-py 8


class Guard(_Core, contextlib.AbstractContextManager["Guard"]):
    """The guard for redis.Redis. Threads may share it, and processes that fork after it was made.

    `client`: its address and credentials are used, with connections and timeouts of the guard's own.
    `capacity`, `error`: rows to expect until the next build, and the share of absent rows that still
    reach the database. `catch_up`: a background thread keeps the heartbeat, and calls it if needed;
    without it, lookups go to the database after a restart until the next build. `on_unavailable`:
    what `insert` does without the server. `timeout`, `insert_timeout`: seconds for each reply.
    """

    def lookup(self, key: K, fetch: Callable[[K], Row]) -> Optional[Row]:
        """Returns `fetch(key)`. If the row certainly does not exist, returns None without calling `fetch`."""
        return fetch(key) if run(self._possible([key])) else None

    def lookup_many(self, keys: Iterable[K], fetch: Callable[[list[K]], Row]) -> Row:
        """`fetch` of those keys whose rows may exist, in one call, with an empty list if there is none."""
        return fetch(run(self._possible(list(keys))))

    insert = sync(_Core._insert)
    build = sync(_Core._build)
    tick = sync(_Core._tick)

    def close(self) -> None:
        """Ends the background thread, adds late keys if the server is there, and ends the connections.

        It waits 2 seconds at most for a `catch_up` that runs. A `catch_up` that hangs is left to its thread.
        Each reply of the server takes `insert_timeout` at most.
        """
        self._after_fork()
        self._ends.set()
        if self._background:
            self._background.join(CLOSE)
        run(self._end())

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        """Starts the background thread if there is none, as in a process that was forked."""
        if self._rows_since and not (self._background and self._background.is_alive()):
            with self._starting:
                if not (self._background and self._background.is_alive()) and not self._ends.is_set():
                    self._background = threading.Thread(target=run, args=(self._work(),), daemon=True)
                    self._background.start()

    def _sleep(self, seconds: float) -> None:
        if self._ends.wait(seconds):
            raise RuntimeError("the guard was closed")


class AsyncGuard(_Core, contextlib.AbstractAsyncContextManager["AsyncGuard"]):
    """`Guard` for redis.asyncio.Redis, with `aclose`: `fetch` and `catch_up` may be coroutine functions."""

    @staticmethod
    async def _sleep(seconds: float) -> None:
        # A library may have swallowed the cancellation. Python 3.11 and later can tell.
        if getattr(asyncio.current_task(), "cancelling", int)():
            raise asyncio.CancelledError
        await asyncio.sleep(seconds)

    async def lookup(self, key: K, fetch: Callable[[K], Awaitable[Row]]) -> Optional[Row]:
        return await fetch(key) if await run_async(self._possible([key])) else None

    async def lookup_many(self, keys: Iterable[K], fetch: Callable[[list[K]], Awaitable[Row]]) -> Row:
        return await fetch(await run_async(self._possible(list(keys))))

    insert = asynchronous(_Core._insert)
    build = asynchronous(_Core._build)
    tick = asynchronous(_Core._tick)

    async def aclose(self) -> None:
        """`Guard.close`: cancels a `catch_up` that runs, and waits 2 seconds at most until it has ended."""
        self._after_fork()
        self._ends.set()
        if self._background:
            self._background.cancel()
            await asyncio.wait([self._background], timeout=CLOSE)
        await run_async(self._end())

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _start(self) -> None:
        if self._rows_since and (self._background is None or self._background.done()):
            self._background = asyncio.get_running_loop().create_task(run_async(self._work()))
