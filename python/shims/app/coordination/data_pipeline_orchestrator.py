"""Put in place of the old module: its names, on the log."""

from ringlog.compat.data_pipeline_orchestrator import *  # noqa: F403
