"""The memory log of ringlog.testing: what a node answers, kept in this process.

Clients reach it by the requests that they send to a node, so that all of their own code runs. Below that

    wire      an Io whose connections end in this process
    node      the requests that there are, and the answers that wait
    log       time, events, duplicates, producers, retention
    cursors   where readers and groups are
    letters   dead letters
    roles     who holds which role, and who waits
    group     which member of a group holds which event
    types     the catalogue, filters, and what is refused of an event
    values    settings, durations and positions

Everything below wire runs under the lock of one Log, and its time is that of a Clock.
"""
