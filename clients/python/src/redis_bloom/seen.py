"""What was seen lately: a filter with a window, which `Seen` creates and fills; and claims, to do things once.

    from redis_bloom import Seen
    seen = Seen(redis.Redis(), "posts", capacity=10_000_000, within=timedelta(days=7))
    seen.add(f"{user}:{post}")                 # True if it was not seen within 7 days
    seen.has(f"{user}:{post}")                 # False is certain; True is wrong at a rate of `error` at most

    for url in seen.claim(urls):               # those that nobody has done or is doing
        fetch(url)
        seen.done(url)                         # only now it counts as seen

Without `within` nothing is forgotten. `AsyncSeen` is the same for redis.asyncio. docs/guide/windows.md says what a
window promises.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterable
from functools import partial
from typing import Any, Optional

from ._steps import K, Key, Steps, asynchronous, bytes_of, checked, sync


class _Core:
    """Seen without input and output.

    `capacity`: different items in 1.25 x `within`, or of all time without `within`.
    `refresh`: an item that is added again is remembered for `within` from then on; if False, from its first
    addition on. `lease`: seconds that a claim holds. If its holder dies, nothing is lost. If its holder takes
    longer, another may do the same.
    """

    def __init__(
        self,
        client: Any,
        name: str,
        *,
        capacity: int,
        error: float = 0.001,
        within: Optional[datetime.timedelta] = None,
        refresh: bool = True,
        lease: float = 600.0,
    ) -> None:
        self.key, self._client, self._lease = name, client, round(lease * 1000)
        self._words: list[Any] = ["CAPACITY", capacity, "ERROR", repr(error)]
        if within:
            self._words += ["WINDOW", "PX", round(within.total_seconds() * 1000)]
            self._words += [] if refresh else ["NOREFRESH"]

    def _add_many(self, items: Iterable[Key]) -> Steps[list[bool]]:
        """Marks items as seen. Returns for each whether it was new."""
        # With these words, a filter that is lost is recreated with its window.
        return (yield from self._send(items, "BF.INSERT", self.key, *self._words, "ITEMS"))

    def _add(self, item: Key) -> Steps[bool]:
        """Marks an item as seen. Returns whether it was new."""
        return (yield from self._add_many([item]))[0]

    def _has_many(self, items: Iterable[Key]) -> Steps[list[bool]]:
        """Returns for each item whether it was seen. Nothing changes."""
        return (yield from self._send(items, "BF.MEXISTS", self.key))

    def _has(self, item: Key) -> Steps[bool]:
        """Whether the item was seen; nothing changes."""
        return (yield from self._has_many([item]))[0]

    def _send(self, items: Iterable[Key], *words: Any) -> Steps[list[bool]]:
        every = list(items)
        if not every:
            return []
        return [bool(one) for one in checked((yield partial(self._client.execute_command, *words, *every)))]

    def _claim(self, items: Iterable[K]) -> Steps[list[K]]:
        """Those of the items that nobody has done or has claimed: they are the caller's now."""
        unique = list(dict.fromkeys(items))
        pipeline = self._client.pipeline(transaction=False)
        for item in unique:
            pipeline.set(self._claim_of(item), "", nx=True, px=self._lease)
        claims = yield partial(pipeline.execute, raise_on_error=False)
        failures = [own for own in claims if isinstance(own, Exception)]
        mine = [item for item, own in zip(unique, claims) if own and not isinstance(own, Exception)]
        try:
            if failures:
                raise failures[0]
            known = yield from self._has_many(mine)  # after the claims: done() adds the item before it ends the claim
        except Exception:
            yield from self._release_all(mine)
            raise
        yield from self._release_all([item for item, seen in zip(mine, known) if seen])
        return [item for item, seen in zip(mine, known) if not seen]

    def _release_all(self, items: Iterable[Key]) -> Steps[None]:
        for item in items:
            with contextlib.suppress(Exception):  # otherwise the claim ends with its lease
                yield from self._release(item)

    def _done(self, item: Key) -> Steps[None]:
        """Marks a claimed item as seen, after its work is stored, and ends the claim."""
        yield from self._add(item)
        yield from self._release(item)

    def _release(self, item: Key) -> Steps[None]:
        """Ends a claim without marking the item."""
        yield partial(self._client.execute_command, "UNLINK", self._claim_of(item))

    def _claim_of(self, item: Key) -> bytes:
        return f"{self.key}:claim:".encode() + bytes_of(item)


class Seen(_Core):
    """Items seen lately, with redis.Redis."""

    add = sync(_Core._add)
    add_many = sync(_Core._add_many)
    has = sync(_Core._has)
    has_many = sync(_Core._has_many)
    claim = sync(_Core._claim)
    done = sync(_Core._done)
    release = sync(_Core._release)


class AsyncSeen(_Core):
    """`Seen` for redis.asyncio: every method is a coroutine."""

    add = asynchronous(_Core._add)
    add_many = asynchronous(_Core._add_many)
    has = asynchronous(_Core._has)
    has_many = asynchronous(_Core._has_many)
    claim = asynchronous(_Core._claim)
    done = asynchronous(_Core._done)
    release = asynchronous(_Core._release)
