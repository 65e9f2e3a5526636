"""Packed batches: all items of a command in one string, all answers in a string of bits.

    from redis_bloom import bulk
    new = bulk.add(r, "users", (f"user:{n}" for n in range(1_000_000)))
    known = bulk.exists(r, "users", ["user:1", "nobody"])
    list(known), known.count(), known.bits

Items are str or bytes from any iterable; or a buffer whose elements are the items, such as a numpy array, an
`array.array` or a `memoryview`: it is sent as it lies in memory, so all writers and readers of a filter must agree on
the type and the byte order. `aadd` and `aexists` are the same for redis.asyncio, and take asynchronous iterables,
too. docs/reference/commands.md has the formats, at BF.BULKADD.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, Iterable, Iterator
from functools import partial
from typing import Any, Union

from ._steps import Key, Steps, asynchronous, batches, sync

BATCH = 10_000  # items of a command, a multiple of 8; a larger batch keeps other clients waiting, and is no faster

Items = Union[Iterable[Key], AsyncIterable[Key], memoryview, Any]


class Answers:
    """Booleans in the order of the items. The highest bit of byte 0 of `bits` is that of item 0; unused bits are 0."""

    def __init__(self, count: int, bits: bytes) -> None:
        self._length, self.bits = count, bits

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> bool:
        index = range(self._length)[index]  # also a negative one
        return bool(self.bits[index >> 3] & 0x80 >> (index & 7))

    def __iter__(self) -> Iterator[bool]:
        return (self[index] for index in range(self._length))

    def count(self) -> int:
        """How many answers are yes."""
        return bin(int.from_bytes(self.bits, "big")).count("1")


class PartlyDone(Exception):
    """The server refused an item: the filter is full, or there is no memory. `answers` are for those before it."""

    def __init__(self, error: Exception, answers: Answers) -> None:
        super().__init__(f"{len(answers)} items were added, then: {error}")
        self.answers = answers


def pack(items: Iterable[Key]) -> bytes:
    """Items with their lengths in front: the format LENGTHS."""
    packed = bytearray()
    for item in items:
        data = item.encode() if isinstance(item, str) else item
        length = len(data)
        while length > 127:
            packed.append(length & 127 | 128)
            length >>= 7
        packed.append(length)
        packed += data
    return bytes(packed)


def _send(client: Any, command: str, key: Key, options: tuple[Any, ...], items: Items) -> Steps[Answers]:
    if isinstance(items, (str, bytes, bytearray)):
        raise TypeError("items are a collection, not one string")
    buffer = None
    with contextlib.suppress(TypeError):
        buffer = memoryview(items)  # type: ignore[arg-type]
    if buffer is None:
        next_batch = batches(items, BATCH)
    else:
        if not buffer.c_contiguous or buffer.ndim != 1:
            raise ValueError("a buffer of items is contiguous and has one dimension")
        parts = (bytes(buffer[i : i + BATCH]) for i in range(0, len(buffer), BATCH))
        next_batch = partial(next, parts, b"")
    count, bits = 0, bytearray()
    while batch := (yield next_batch):
        words = ("LENGTHS", pack(batch)) if buffer is None else ("WIDTH", buffer.itemsize, batch)
        done, answers, *error = yield partial(client.execute_command, command, key, *options, *words, NEVER_DECODE=True)
        count += done
        bits += answers
        if error:
            raise PartlyDone(error[0], Answers(count, bytes(bits)))
    return Answers(count, bytes(bits))


def _add(client: Any, key: Key, items: Items, *options: Any) -> Steps[Answers]:
    """Adds items, BATCH a command. Returns for each whether it was new.

    `options` are words of BF.INSERT, such as "NOCREATE". If the connection breaks, send all items again: to
    add an item twice is harmless, except in a COUNTING filter.
    """
    return _send(client, "BF.BULKADD", key, options, items)


def _exists(client: Any, key: Key, items: Items) -> Steps[Answers]:
    """Returns for each item whether it was probably added. False is certain."""
    return _send(client, "BF.BULKEXISTS", key, (), items)


add, aadd = sync(_add), asynchronous(_add)
exists, aexists = sync(_exists), asynchronous(_exists)
