"""Clients that mean no good: the others notice nothing, memory stays bounded, the log names the limit."""
