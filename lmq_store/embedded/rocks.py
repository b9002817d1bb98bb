"""How the two RocksDB databases of a store are opened and written: raw bytes, write-ahead log off (the commit log is one)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, RdictIter, WriteBatch, WriteOptions

WRITE_BUFFER = 32 << 20
BLOCK_CACHE = 32 << 20


def database_options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER)
    options.set_max_write_buffer_number(4)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    options.set_max_open_files(512)
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_stats_dump_period_sec(0)
    options.set_compression_type(DBCompressionType.none())  # positions and rows gain little, and the core is the server's
    options.set_level_zero_file_num_compaction_trigger(8)
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(BLOCK_CACHE))
    blocks.set_bloom_filter(10, False)
    options.set_block_based_table_factory(blocks)
    return options


class Database:
    """A sorted map of bytes. Writes are visible at once and durable only after `flush` (or RocksDB's own)."""

    def __init__(self, path: str, read_only: bool = False) -> None:
        self.path = path
        access = AccessType.read_only() if read_only else AccessType.read_write()
        self._db = Rdict(path, database_options(), access_type=access)
        self._write_options = WriteOptions()
        self._write_options.disable_wal = True  # type: ignore[method-assign, assignment]
        if not read_only:
            self._db.set_write_options(self._write_options)

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._db.get(key)
        return found

    def write(self, batch: WriteBatch) -> None:
        self._db.write(batch, self._write_options)

    def iterator(self) -> RdictIter:
        """A cursor over the map as it is now."""
        return self._db.iter()

    def range(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key begins with `prefix`, in order, from `start` on (a whole key), as they are at the call."""
        rows: Iterator[tuple[Any, Any]] = self._db.items(from_key=max(prefix, start))  # one call a row, where a cursor takes four
        return _rows(rows, prefix)

    def flush(self) -> None:
        """Make everything written before durable. Releases the interpreter lock while it works."""
        self._db.flush(True)

    def close(self) -> None:
        self._db.close()


def new_batch() -> WriteBatch:
    return WriteBatch(raw_mode=True)


def _rows(rows: Iterator[tuple[Any, Any]], prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    for row in rows:
        if not row[0].startswith(prefix):
            return
        yield row
