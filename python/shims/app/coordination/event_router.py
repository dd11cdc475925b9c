"""Put in place of the old module: its names, on the log."""

from ringlog.compat.event_router import *  # noqa: F403
