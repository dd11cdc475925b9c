"""The programs of docs/python.md run as they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile

from ringlog import Client
from tests.cluster import ROOT, ClusterTest, eventually


class Document(ClusterTest):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ringlog-docs-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)

    def start(self, *program: str, urls: str = "") -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "RINGLOG_ENDPOINTS": urls or self.cluster.urls}
        return subprocess.Popen(
            program, env=env, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def start_python(self, program: str, urls: str = "") -> subprocess.Popen[str]:
        return self.start(sys.executable, "-W", "error", "-c", program, urls=urls)

    def test_its_programs_run(self) -> None:
        programs = self.blocks("python")
        publisher, spooler, subscriber, member, stopper, holder, allocator, viewer, scheduler, *rest = programs
        pauser, caller, daemon_test, handler_test, old_buses = rest
        for program, logged in (
            (publisher, []),
            (holder, []),
            (allocator, []),
            (viewer, []),
            (scheduler, []),
            (caller, []),
            (daemon_test, ["nacked: ConnectionError: no route to the host", "rejected: KeyError: 'config_key'"]),
            (handler_test, []),
            (old_buses, []),
        ):
            process = self.start_python(program)
            _, err = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, err)
            self.assertEqual(re.findall(r"^group promoters: event \d+ \(\w+\) was (.*)", err, re.MULTILINE), logged)
            self.assertEqual(bool(err), bool(logged), err)
        with Client(self.cluster.urls) as log:
            self.assertEqual(len(list(log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True))), 1000)
            for program, name, printed in (
                (subscriber, "promoter", "promote hex8_2p\n"),
                (member, "sync-workers", "sync gpu-999\n"),
            ):
                # Each follows the log, until Ctrl-C, and has nothing left after it.
                process = self.start_python(program)
                eventually(f"{name} has handled all", lambda n=name: log.get_cursor(n)["lag_events"] == 0)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
                self.assertIn(printed, out)
                self.assertTrue(err.endswith("\nKeyboardInterrupt\n"), err)
            self.assertEqual(log.dead_letters(), [])
            self.assertEqual(len(list(log.tail("start", types=["MODEL_PROMOTED"], until_end=True))), 1)
            self.assertGreater(log.get_cursor("promotions")["committed"], 0)
            ended = [event.type for event in log.tail("start", keys=["PROMOTION_LEADER"], until_end=True)]
            self.assertEqual(ended, ["ROLE_ACQUIRED", "ROLE_RELEASED"])
            granted = [event.type for event in log.tail("start", types=["ALLOCATION_*"], until_end=True)]
            self.assertEqual(granted, ["ALLOCATION_GRANTED", "ALLOCATION_RELEASED"])
            self.assertEqual([one["id"] for one in log.scheduled()], ["nightly-2099-01-01"])

            # SIGTERM ends it in order.
            log.publish("EVALUATION_STARTED", {"model_path": "m7"})
            process = self.start_python(stopper)
            eventually("it has handled all", lambda: log.get_cursor("evaluation-workers")["lag_events"] == 0)
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, err), (0, ""))
            done = log.tail("start", types=["EVALUATION_PROGRESS"], until_end=True)
            self.assertEqual([event.key for event in done], ["m7"])
            self.assertEqual(log.group_members("evaluation-workers"), [])

            # A reader that lags pauses it once, and one that has caught up lets it resume.
            process = self.start_python(pauser)
            log.create_cursor("trainer-7", types=["SELFPLAY_COMPLETE"], from_="end")
            log.publish_many([{"type": "SELFPLAY_COMPLETE", "payload": {"games": n}} for n in range(100)])
            eventually("it pauses", lambda: "since" in log.get_cursor("trainer-7").get("backpressure", {}))
            log.seek_cursor("trainer-7", "end")
            eventually("it resumes", lambda: "since" not in log.get_cursor("trainer-7")["backpressure"])
            eventually("it has handled both", lambda: log.get_cursor("selfplay")["lag_events"] == 0)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            self.assertEqual(out, "pause\nresume\n", err)

        # While the cluster is away, and after that.
        for urls, printed in (("http://127.0.0.1:1", "spooled\n"), ("", "")):
            process = self.start_python(spooler, urls)
            out, _ = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0)
            self.assertIn(printed, out)
        with Client(self.cluster.urls) as log:
            self.assertEqual(len(list(log.tail("start", keys=["hex8_3p"], until_end=True))), 2)

    def test_the_move_from_an_old_bus_runs(self) -> None:
        whole = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
        self.text = whole[whole.index("## Move without a stop") : whole.index("## While both run")]
        [daemon], [commands] = self.blocks("python"), self.blocks("sh")
        out, err = self.start(sys.executable, "-c", daemon).communicate(timeout=60)
        self.assertEqual((out, err), ("promoted m1\npromoted m2\npromoted m3\n", ""))
        process = self.start("sh", "-e", "-c", commands)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn("delivered by both 3,", out)
        self.assertIn("\nverdict safe\n", out)
        self.assertIn('{"verdict":"safe","reasons":[]', out)

    def test_its_commands_run(self) -> None:
        [commands] = self.blocks("sh")
        process = self.start("sh", "-e", "-c", commands)
        out, err = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, err)
        self.assertIn("waiting  0 events", out)
        self.assertIn("handled ", out)
        self.assertIn('pull gpu-8: {"host": "gpu-8"}', err)
