"""Debian's prometheus-redis-exporter in front of servers of the tests."""

import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

FILES = pathlib.Path(__file__).parents[2] / "contrib" / "monitoring"
PORT = os.environ["REDIS_PORT"]
SCRIPT_METRIC = re.compile(r'^redis_script_values\{(?:filename="[^"]*",)?key="([^"]*)".*\} (\S+)$', re.MULTILINE)


class Exporter:
    """The exporter with the options of README.md, and a copy of the script that has these settings."""

    def __init__(self, environment=(), **settings):
        self.dir = tempfile.TemporaryDirectory()
        script = (FILES / "redis-bloom.lua").read_text()
        for name, value in settings.items():
            script, count = re.subn(f"^local {name} = .*$", f"local {name} = {value}", script, flags=re.MULTILINE)
            assert count == 1, f"the script has no setting {name}"
        path = pathlib.Path(self.dir.name) / "redis-bloom.lua"
        path.write_text(script)
        (options,) = re.findall('^ARGS="(.*)"$', (FILES / "README.md").read_text(), re.MULTILINE)
        options = options.replace("/etc/redis-bloom.lua", str(path)).split()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        with open(path.with_name("log"), "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["prometheus-redis-exporter", *options, "-web.listen-address", self.address],
                stdout=log, stderr=log,
                env={**os.environ, "REDIS_ADDR": f"redis://127.0.0.1:{PORT}", **dict(environment)},
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.dir.cleanup()

    def page(self, port=PORT):
        """The metrics of the server on `port`."""
        deadline = time.monotonic() + 30
        while True:
            try:
                target = f"http://{self.address}/scrape?target=redis://127.0.0.1:{port}"
                with urllib.request.urlopen(target) as reply:
                    return reply.read().decode()
            except urllib.error.URLError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError((pathlib.Path(self.dir.name) / "log").read_text()) from None
                time.sleep(0.02)

    def values(self, port=PORT):
        return {key: float(value) for key, value in SCRIPT_METRIC.findall(self.page(port))}
