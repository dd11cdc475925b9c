"""Put in place of the old module: its names, on the log."""

from ringlog.compat.stage_events import *  # noqa: F403
