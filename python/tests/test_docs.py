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
            [sys.executable, "-W", "error", "-c", program], env=env, stderr=subprocess.PIPE, text=True
        )

    def test_its_programs_run(self) -> None:
        text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
        publisher, subscriber, member = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        process = self.start(publisher)
        _, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (0, ""))
        with Client(self.cluster.urls) as log:
            self.assertEqual(len(list(log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True))), 1000)
            for program, name in ((subscriber, "promoter"), (member, "sync-workers")):
                # Each follows the log, until Ctrl-C, and has nothing left after it.
                process = self.start(program)
                eventually(f"{name} has handled all", lambda n=name: log.get_cursor(n)["lag_events"] == 0)
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=60)
                self.assertTrue(err.endswith("\nKeyboardInterrupt\n"), err)
            self.assertEqual(log.dead_letters(), [])
