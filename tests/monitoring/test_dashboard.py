"""Runs every query of contrib/monitoring/dashboard.json in Debian's Prometheus, which scrapes Debian's
prometheus-redis-exporter and evaluates alerts.yml: a query that shows nothing would be an empty panel."""

import json
import pathlib
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

from cluster import free_ports, wait_until
from exporter import FILES, Exporter
from test_monitoring import dashboard_queries, fill_every_figure, redis

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: redis-bloom
    static_configs: [{{targets: ['{target}']}}]
"""


class Prometheus:
    def __init__(self, target):
        self.directory = tempfile.TemporaryDirectory()
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}/api/v1/"
        directory = pathlib.Path(self.directory.name)
        config = directory / "prometheus.yml"
        config.write_text(CONFIG.format(rules=FILES / "alerts.yml", target=target))
        self.log = directory / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}",
                 f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)

    def ask(self, path, **fields):
        """What the API answers; None while Prometheus starts."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(fields)}") as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{fields}: {error.read()}") from None
        except urllib.error.URLError:
            if self.process.poll() is not None:
                raise AssertionError(self.log.read_text()) from None
            return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.directory.cleanup()


class Dashboard(unittest.TestCase):
    def test_every_query_shows_something(self):
        settings = fill_every_figure()
        redis("CONFIG", "SET", "maxmemory", "1gb")
        self.addCleanup(redis, "CONFIG", "SET", "maxmemory", "0")
        queries = dashboard_queries()
        self.assertGreaterEqual(len(queries), 30)
        with Exporter(**settings) as exporter, Prometheus(exporter.address) as prometheus:
            for query in queries:
                query = query.replace("$instance", ".+").replace("$__rate_interval", "1m")
                if query.startswith("label_values("):
                    query = query.removeprefix("label_values(").rsplit(",", 1)[0]
                wait_until(query, lambda: (prometheus.ask("query", query=query) or {}).get("result"))
            groups = prometheus.ask("rules")["groups"]
            health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
            self.assertGreaterEqual(len(health), 30)
            self.assertEqual(set(health.values()), {"ok"}, health)


if __name__ == "__main__":
    unittest.main()
