"""contrib/docker/compose.yml: each file that it names exists, and each file that it gives to a program is valid.

Run by scripts/test-contrib.
"""

import pathlib
import shutil
import subprocess
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).parents[2]
DOCKER = ROOT / "contrib/docker"
COMPOSE = yaml.safe_load((DOCKER / "compose.yml").read_text())
SERVICES = COMPOSE["services"]


def mounts(service):
    """The files and directories of this tree that a service sees, and where."""
    for volume in SERVICES[service].get("volumes", []):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            yield (DOCKER / source).resolve(), target


class Compose(unittest.TestCase):
    def test_every_file_is_there_and_is_mounted_read_only(self):
        found = [file for service in SERVICES for file, _ in mounts(service)]
        self.assertEqual(len(found), 6)
        for file in found:
            self.assertTrue(file.is_file(), file)
        for service in SERVICES.values():
            for volume in service.get("volumes", []):
                self.assertTrue(volume.endswith(":ro") or volume.split(":")[0] in COMPOSE["volumes"], volume)
        build = SERVICES["redis"]["build"]
        context = (DOCKER / build["context"]).resolve()
        self.assertEqual(context, ROOT)
        self.assertTrue((context / build["dockerfile"]).is_file())

    def test_services_name_each_other(self):
        for name, service in SERVICES.items():
            for other in service.get("depends_on", []):
                self.assertIn(other, SERVICES, name)
        self.assertEqual(SERVICES["exporter"]["environment"]["REDIS_ADDR"], "redis://redis:6379")
        (datasource,) = yaml.safe_load((DOCKER / "grafana.yml").read_text())["datasources"]
        self.assertEqual(datasource["url"], "http://prometheus:9090")
        (scraped,) = yaml.safe_load((DOCKER / "prometheus.yml").read_text())["scrape_configs"]
        self.assertEqual(scraped["static_configs"], [{"targets": ["exporter:9121"]}])
        # The alerts look at this job alone.
        self.assertIn(f'job="{scraped["job_name"]}"', (ROOT / "contrib/monitoring/alerts.yml").read_text())

    def test_ports_are_open_to_this_machine_alone(self):
        for name, service in SERVICES.items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: {port}")

    def test_prometheus_reads_its_files(self):
        with tempfile.TemporaryDirectory() as directory:
            for file, target in mounts("prometheus"):
                shutil.copy(file, pathlib.Path(directory, pathlib.Path(target).name))
            done = subprocess.run(["promtool", "check", "config", f"{directory}/prometheus.yml"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("1 rule files found", done.stdout)

    def test_the_exporter_has_the_flags(self):
        shown = subprocess.run(["prometheus-redis-exporter", "--help"], capture_output=True, text=True, check=False).stderr
        flags = [word for word in SERVICES["exporter"]["command"] if word.startswith("-")]
        self.assertEqual(len(flags), 2)
        for flag in flags:
            self.assertIn(f"\n  {flag}", shown)
        self.assertIn(SERVICES["exporter"]["command"][1], [target for _, target in mounts("exporter")])

    def test_grafana_finds_the_dashboard(self):
        (provider,) = yaml.safe_load((DOCKER / "dashboards.yml").read_text())["providers"]
        dashboards = [target for file, target in mounts("grafana") if file.suffix == ".json"]
        self.assertEqual([str(pathlib.PurePath(target).parent) for target in dashboards], [provider["options"]["path"]])


if __name__ == "__main__":
    unittest.main()
