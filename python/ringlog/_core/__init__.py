"""What the blocking and the asyncio client share: everything but sockets, waiting and tasks.

The code is written as coroutines over the Io of io.py. An asyncio program awaits them. The
blocking client runs the same coroutines with an Io that blocks and so never suspends; see `drive`.
"""
