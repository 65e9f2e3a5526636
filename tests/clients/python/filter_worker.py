"""Runs the sharded filter of clients/python for test_sharded_library.py: `filter_worker.py NAME URL sync|asyncio`."""

import asyncio
import sys

import redis
import redis.asyncio
from redis_bloom import AsyncShardedFilter, ShardedFilter

name, url, kind = sys.argv[1:]


async def answer(filter, command, *items):
    result = getattr(filter, command)(*[items] if items else [])
    if kind == "asyncio":
        result = await result
    return "ok" if result is None else "".join("?" if one is None else str(int(one)) for one in result)


async def main():
    module = redis if kind == "sync" else redis.asyncio
    cluster = module.RedisCluster.from_url(url, socket_timeout=0.5)
    filter = (ShardedFilter if kind == "sync" else AsyncShardedFilter)(cluster, name)
    for line in sys.stdin:
        try:
            print(await answer(filter, *line.split()), flush=True)
        except Exception as error:
            print(f"raised {type(error).__name__}: {error}".replace("\n", " "), flush=True)


asyncio.run(main())
