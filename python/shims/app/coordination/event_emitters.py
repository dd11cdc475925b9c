"""Put in place of the old module: its names, on the log."""

from ringlog.compat.event_emitters import *  # noqa: F403
