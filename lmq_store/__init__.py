"""The durable log with light queues: one commit log, many small ordered indexes over it."""

import lmq_store.source_first as _source_first

_source_first.install_if_asked()
