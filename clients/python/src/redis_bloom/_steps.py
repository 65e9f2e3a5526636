"""One logic for redis-py and its asyncio: generators that yield steps, and two loops that run them.

A step is a function without arguments. `run` calls it and sends the result back into the generator;
`run_async` awaits the result first if it can be awaited. What a step raises is raised where it was
yielded. Nothing here knows a filter.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Generator, Iterator
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union

from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

S = TypeVar("S")
T = TypeVar("T")
Key = Union[str, bytes]
Steps = Generator[Callable[[], Any], Any, T]


def run(steps: Steps[T]) -> T:
    """Runs a generator to its end and returns its result."""
    try:
        step = next(steps)
        while True:
            try:
                result = step()
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def run_async(steps: Steps[T]) -> T:
    """`run` for steps whose results may have to be awaited."""
    try:
        step = next(steps)
        while True:
            try:
                result = step()
                if inspect.isawaitable(result):
                    result = await result
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def sync(method: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], T]:
    """A method that runs the steps of another one, `_name`; it has its documentation."""

    @wraps(method)
    def call(self: S, /, *words: P.args, **options: P.kwargs) -> T:
        return run(method(self, *words, **options))

    call.__name__ = method.__name__.strip("_")
    return call


def asynchronous(method: Callable[Concatenate[S, P], Steps[T]]) -> Callable[Concatenate[S, P], Awaitable[T]]:
    """`sync` for asyncio: a coroutine function."""

    @wraps(method)
    async def call(self: S, /, *words: P.args, **options: P.kwargs) -> T:
        return await run_async(method(self, *words, **options))

    call.__name__ = method.__name__.strip("_")
    return call


def next_batch(items: Iterator[Any] | AsyncIterator[Any], size: int) -> Any:
    """The next items as a list, which is empty at the end; of an AsyncIterator, what to await for it."""
    if isinstance(items, AsyncIterator):
        return _next_batch(items, size)
    return list(islice(items, size))


async def _next_batch(items: AsyncIterator[Any], size: int) -> list[Any]:
    batch: list[Any] = []
    async for item in items:
        batch.append(item)
        if len(batch) == size:
            break
    return batch


def iterator(items: Any) -> Any:
    """The iterator of an iterable of either kind."""
    return items.__aiter__() if hasattr(items, "__aiter__") else iter(items)


def with_timeout(client: Any, seconds: float) -> Any:
    """A client of the same server that waits `seconds` at most for a connection or a reply, and tries once.

    redis-py waits for ever by default before version 8, and tries again for seconds from then on. A
    client of a cluster or of Sentinel is taken as it is, and must have a `socket_timeout`.
    """
    pool = getattr(client, "connection_pool", None)
    manager = getattr(client, "nodes_manager", None)
    if pool is not None and not hasattr(pool, "sentinel_manager"):
        module = inspect.getmodule(type(client))
        is_async = module is not None and module.__name__.startswith("redis.asyncio")
        options = {
            **pool.connection_kwargs,
            "socket_timeout": seconds,
            "socket_connect_timeout": seconds,
            "retry": (AsyncRetry if is_async else Retry)(NoBackoff(), 0),
            "retry_on_timeout": False,
            "decode_responses": False,
        }
        base = next(one for one in type(pool).__mro__ if one.__name__ == "ConnectionPool")
        own = base(connection_class=pool.connection_class, **options)
        return type(client)(connection_pool=own)
    owner = pool or manager or client
    if not getattr(owner, "connection_kwargs", {}).get("socket_timeout"):
        raise ValueError("a client of a cluster or of Sentinel needs a socket_timeout, such as 0.1")
    return client


def text(value: Any) -> str:
    """A reply as text, whether the client decodes replies or not."""
    return value.decode() if isinstance(value, bytes) else str(value)


def checked(answers: Any) -> list[Any]:
    """An array of answers. redis-py does not raise an error that is inside an array: this does."""
    if answers and isinstance(answers[-1], Exception):
        raise answers[-1]
    return list(answers)
