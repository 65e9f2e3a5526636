"""Each worker of pytest-xdist has a server of its own, which REDIS_PORT and REDIS_URL name."""

import os

from server import Server


class Shared(Server):
    def start(self, *_, **__):
        super().start("--appendonly", "no")


def pytest_configure(config):
    if hasattr(config, "workerinput"):
        server = Shared()
        config.add_cleanup(server.close)
        os.environ.update(REDIS_PORT=str(server.port), REDIS_URL=server.url)
