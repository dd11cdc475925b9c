"""Put in place of the old module: its names, on the log."""

from ringlog.compat.event_bus import *  # noqa: F403
