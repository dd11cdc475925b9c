"""The programs of docs/python.md run as they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

from ringlog import Client
from tests.cluster import ROOT, ClusterTest, eventually


class Document(ClusterTest):
    def start(self, program: str) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "RINGLOG_ENDPOINTS": self.cluster.urls}
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def test_its_programs_run(self) -> None:
        text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        publisher, subscriber, member, handler_test, old_buses = re.findall(
            r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE
        )
        for program in (publisher, handler_test, old_buses):
            process = self.start(program)
            _, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, err), (0, ""))
        with Client(self.cluster.urls) as log:
            self.assertEqual(len(list(log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True))), 1000)
            for program, name, printed in (
                (subscriber, "promoter", "promote hex8_2p\n"),
                (member, "sync-workers", "sync gpu-999\n"),
            ):
                # Each follows the log, until Ctrl-C, and has nothing left after it.
                process = self.start(program)
                eventually(f"{name} has handled all", lambda n=name: log.get_cursor(n)["lag_events"] == 0)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=60)
                self.assertIn(printed, out)
                self.assertTrue(err.endswith("\nKeyboardInterrupt\n"), err)
            self.assertEqual(log.dead_letters(), [])
