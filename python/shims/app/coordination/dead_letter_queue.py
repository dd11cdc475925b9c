"""Put in place of the old module: its names, on the log."""

from ringlog.compat.dead_letter_queue import *  # noqa: F403
