"""Put in place of the old module: its names, on the log."""

from ringlog.compat.event_emitters import *  # noqa: F403
from ringlog.compat.event_router import *  # noqa: F403
