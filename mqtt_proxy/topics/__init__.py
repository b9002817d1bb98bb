"""Topic names and filters: what is valid, what matches what, and what a filter's light queue is called. Pure."""
