"""Notify: the hint that light queues have grown, from whoever appended to every proxy that cares."""
