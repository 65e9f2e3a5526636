"""The files of contrib/monitoring, with Debian's prometheus-redis-exporter and promtool.

Run by scripts/test-monitoring, with a server that has the module on REDIS_PORT, and nobody else's data. The
tests of sharded filters start a cluster of their own.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from exporter import FILES, PORT, Exporter

ROOT = pathlib.Path(__file__).parents[2]
# In an expression of PromQL: a metric of the exporter or of a recording rule, and the `key` asked for.
NAMED = re.compile(r'\b(redis_bloom:[a-z_]+|redis_[a-z_]+|up)\b(?:\{key=~?"([^"]*)")?')


def redis(*words):
    command = ["redis-cli", "-p", PORT, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def info():
    """The fields bf_... of INFO modules."""
    fields = re.findall(r"^(bf_\w+):(.*)$", redis("INFO", "modules").replace("\r", ""), re.MULTILINE)
    return {name: float(value) for name, value in fields}


def named_in(text):
    return set(NAMED.findall(text))


def fill_every_figure():
    """Makes a filter and a sharded one; returns the settings of the script with which the exporter shows both."""
    redis("FLUSHALL")
    redis("BF.ADD", "urls:seen", "item")
    shards = ["{sharded:5}:1", "{sharded:9}:1"]
    for number, key in enumerate(shards):
        redis("BF.RESERVE", key, "0.01", "100", "SHARD", str(number), "2")
    # The two shards of these items; without items there is no imbalance.
    redis("BF.ADD", shards[0], "b")
    redis("HSET", "sharded", "rule", "crc32", "poll", "10", "shards", "2", "generation", "1", "error", "0.01",
          "capacity", "200", "0", shards[0], "1", shards[1], "state", "ready")
    return {"keys": "{'urls:seen'}", "sharded": "{sharded = {2}}"}


def dashboard_queries():
    """The queries of all panels, those of collapsed rows too, and of the variables."""
    dashboard = json.loads((FILES / "dashboard.json").read_text())
    panels = [inner for panel in dashboard["panels"] for inner in panel.get("panels", [panel])]
    return [target["expr"] for panel in panels for target in panel["targets"]] + [
        variable["query"]["query"] for variable in dashboard["templating"]["list"][1:]]


class Metrics(unittest.TestCase):
    def setUp(self):
        redis("FLUSHALL")
        redis("BF.RESERVE", "urls:seen", "0.001", "10", "NONSCALING")
        redis("BF.MADD", "urls:seen", *(f"item-{number}" for number in range(20)))
        redis("BF.RESERVE", "small", "0.01", "5")
        redis("BF.MADD", "small", *(f"item-{number}" for number in range(20)))
        redis("BF.MEXISTS", "small", "item-0", "item-1", "absent")
        redis("BF.RESERVE", "counting", "0.01", "100", "COUNTING")
        redis("BF.MADD", "counting", "a", "b")
        redis("BF.DEL", "counting", "a")
        redis("BF.EXISTS", "missing", "a")
        redis("SET", "string", "value")

    def test_every_field_of_info_is_a_metric_with_its_value(self):
        fields = info()
        self.assertGreaterEqual(len(fields), 24)
        for name in ("bf_filters", "bf_bytes", "bf_items", "bf_capacity", "bf_layers", "bf_adds", "bf_checks",
                     "bf_positives", "bf_refused", "bf_refused_full", "bf_missing", "bf_scaled", "bf_filled",
                     "bf_deletes"):
            self.assertGreater(fields[name], 0, name)
        with Exporter() as exporter:
            self.assertEqual(exporter.values(), fields)

    def test_the_filters_of_the_list_have_metrics_of_their_own(self):
        with Exporter(keys="{'urls:seen', 'small', 'missing', 'string'}") as exporter:
            values = exporter.values()
        own = {name: value for name, value in values.items() if name.startswith("bf_key_")}
        expected = {
            f"bf_key_{metric}:{key}": float(redis("BF.INFO", key, word))
            for key in ("urls:seen", "small")
            for metric, word in [("items", "ITEMS"), ("capacity", "CAPACITY"), ("layers", "FILTERS"),
                                 ("error", "ERROR"), ("fpr", "FPR")]
        }
        self.assertEqual(own, expected)
        self.assertEqual(expected["bf_key_items:urls:seen"], 10)
        self.assertGreater(expected["bf_key_layers:small"], 1)

    def test_the_monitor_role_of_the_page_suffices(self):
        page = (ROOT / "docs/guide/operations.md").read_text()
        (role,) = re.findall(r"^ACL SETUSER monitor .*$", page, re.MULTILINE)
        redis(*role.replace(">password", ">secret").split())
        self.addCleanup(redis, "ACL", "DELUSER", "monitor")
        user = {"REDIS_USER": "monitor", "REDIS_PASSWORD": "secret"}
        with Exporter(user, keys="{'small', 'urls:seen'}") as exporter:
            values = exporter.values()
        self.assertEqual({name: values[name] for name in info()}, info())
        self.assertEqual(values["bf_key_items:urls:seen"], 10)
        self.assertNotIn("bf_key_items:small", values)  # not a key of the role

    def test_an_exporter_that_is_refused_shows_what_the_alerts_look_for(self):
        redis("ACL", "SETUSER", "monitor", "on", ">secret", "-@all", "+ping", "+info", "+client|setname")
        self.addCleanup(redis, "ACL", "DELUSER", "monitor")
        (refusal,) = set(re.findall(r'err=~"(.*?)"', (FILES / "alerts.yml").read_text()))
        for password, named in [("secret", True), ("wrong", False)]:
            with Exporter({"REDIS_USER": "monitor", "REDIS_PASSWORD": password}) as exporter:
                page = exporter.page()
            self.assertIn("\nredis_up 0\n", page, password)
            (error,) = re.findall(r'^redis_exporter_last_scrape_error\{err="(.+)"\} 1$', page, re.MULTILINE)
            self.assertEqual(bool(re.fullmatch(refusal, error)), named, error)

    def test_a_server_that_hangs_is_down_before_prometheus_gives_up(self):
        pid = int(re.search(r"process_id:(\d+)", redis("INFO", "server"))[1])
        with Exporter() as exporter:
            self.assertIn("\nredis_up 1\n", exporter.page())
            os.kill(pid, signal.SIGSTOP)
            try:
                begun = time.monotonic()
                self.assertIn("\nredis_up 0\n", exporter.page())
                self.assertLess(time.monotonic() - begun, 10)  # the scrape_timeout of Prometheus
            finally:
                os.kill(pid, signal.SIGCONT)

    def test_the_password_is_written_into_a_file_that_others_cannot_read(self):
        lines = (FILES / "README.md").read_text().splitlines()
        file = "/etc/default/prometheus-redis-exporter"
        self.assertLess(lines.index(f"chmod 600 {file}"), lines.index(f"cat >>{file} <<'END'"))


class Rules(unittest.TestCase):
    def test_every_alert_fires_when_it_should_and_only_then(self):
        with tempfile.TemporaryDirectory() as name:
            rules = shutil.copy(FILES / "alerts.yml", name)
            tests = shutil.copy(ROOT / "tests" / "monitoring" / "alerts.test.yml", name)
            for command in (["check", "rules", rules], ["test", "rules", tests]):
                done = subprocess.run(["promtool", *command], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            alerts = re.findall(r"alert: (\w+)", pathlib.Path(rules).read_text())
            self.assertGreaterEqual(len(alerts), 10)
            # promtool accepts a rule without a test: each alert has one that expects it to fire.
            fires = re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:\n", pathlib.Path(tests).read_text())
            self.assertEqual(sorted(set(fires)), sorted(alerts))

    def test_the_rules_and_the_dashboard_name_only_metrics_that_exist(self):
        with Exporter(**fill_every_figure()) as exporter:
            page = exporter.page()
            keys = exporter.values()
        exported = {"up", *re.findall(r"^(redis_\w+)", page, re.MULTILINE)}  # Prometheus makes `up`
        rules = (FILES / "alerts.yml").read_text()
        recorded = set(re.findall(r"record: (\S+)", rules))
        expressions = dashboard_queries()
        expressions += re.findall(r"expr: (?:\|\n)?((?:.+\n)+?)(?= *(?:for|labels|- record|- alert):|\n)", rules)
        seen = set()
        for expression in expressions:
            metrics = named_in(expression)
            self.assertTrue(metrics, expression)
            for metric, key in metrics:
                seen.add(key or metric)
                self.assertIn(metric, exported | recorded, expression)
                if key:
                    self.assertTrue([name for name in keys if re.fullmatch(key, name)], expression)
        # The search for names works: it finds those of rules with one line and with several.
        self.assertLessEqual({"bf_filters", "bf_refused", "redis_memory_max_bytes", "redis_bloom:key_fpr"}, seen)


if __name__ == "__main__":
    unittest.main()
