"""One logic for redis-py and its asyncio: generators that yield steps, and a loop that runs them.

A step is a function without arguments. `run` calls it and sends the result back into the generator;
`run_async` awaits the result first if it can be awaited. What a step raises is raised where it was
yielded. Nothing here knows about filters.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Callable, TypeVar, Union

import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")
Key = Union[str, bytes]
K = TypeVar("K", bound=Key)
Steps = Generator[Callable[[], Any], Any, T]


def run(steps: Steps[T]) -> T:
    """Runs a generator to its end and returns its result."""
    loop = run_async(steps)
    try:
        loop.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    loop.close()
    raise TypeError("a result must be awaited: use the class for asyncio")


async def run_async(steps: Steps[T]) -> T:
    """`run` for steps whose results may have to be awaited."""
    try:
        step = next(steps)
        while True:
            try:
                result = step()
                if hasattr(result, "__await__"):
                    result = await result
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def sync(method: Callable[P, Steps[T]]) -> Callable[P, T]:
    """A method that runs the steps of another one, `_name`, and has the docstring of that one."""

    @wraps(method)
    def call(*words: P.args, **options: P.kwargs) -> T:
        return run(method(*words, **options))

    call.__name__ = method.__name__.strip("_")
    return call


def asynchronous(method: Callable[P, Steps[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """`sync` for asyncio: a coroutine function."""

    @wraps(method)
    async def call(*words: P.args, **options: P.kwargs) -> T:
        return await run_async(method(*words, **options))

    call.__name__ = method.__name__.strip("_")
    return call


def batches(items: Any, size: int) -> Callable[[], Any]:
    """A step for the next items as a list, which is empty at the end. The iterable may be an asynchronous one."""
    if not hasattr(items, "__aiter__"):
        rest = iter(items)
        return lambda: list(islice(rest, size))
    later = items.__aiter__()

    async def batch() -> list[Any]:
        found: list[Any] = []
        async for item in later:
            found.append(item)
            if len(found) == size:
                break
        return found

    return batch


def with_timeout(client: Any, seconds: float) -> Any:
    """A client of the same server that waits `seconds` at most for a connection or a reply, and tries once.

    Before version 8, redis-py waits for ever by default. Since version 8, it tries again for seconds. A
    client of a cluster or of Sentinel is taken as it is, and must have a `socket_timeout`.
    """
    pool = getattr(client, "connection_pool", None)
    if pool is None or hasattr(pool, "sentinel_manager"):
        owner = pool or getattr(client, "nodes_manager", client)
        if not getattr(owner, "connection_kwargs", {}).get("socket_timeout"):
            raise ValueError("a client of a cluster or of Sentinel needs a socket_timeout, such as 0.1")
        return client
    kind, retry = (redis.asyncio, AsyncRetry) if isinstance(client, redis.asyncio.Redis) else (redis, Retry)
    options = dict(pool.connection_kwargs, socket_timeout=seconds, encoding="utf-8")
    if "path" not in options:  # a Unix socket, which takes no such word in redis-py 4
        options["socket_connect_timeout"] = seconds
    options.update(retry=retry(NoBackoff(), 0), retry_on_timeout=False, decode_responses=False)
    return type(client)(connection_pool=kind.ConnectionPool(connection_class=pool.connection_class, **options))


def bytes_of(key: Key) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(memoryview(key))  # not bytes(3), which are three zeros


def text(value: Any) -> str:
    """A reply as text, whether the client decodes replies or not."""
    return value.decode() if isinstance(value, bytes) else str(value)


def checked(answers: Any) -> list[Any]:
    """An array of answers. redis-py does not raise an error that is inside an array: this does."""
    if answers and isinstance(answers[-1], Exception):
        raise answers[-1]
    return list(answers)
