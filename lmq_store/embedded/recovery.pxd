cimport cython
from lmq_store.embedded.append cimport Appender
from lmq_store.embedded.consume_queue cimport IndexedQueue
from lmq_store.embedded.record cimport (check_frame, check_record, decode_message, record_flags, record_parent, record_payload,
                                        record_queues, record_size, record_stored_ms, record_type)

cdef Py_ssize_t FRAME_HEADER, MESSAGE, QOS_BITS, RETAIN_BIT, REPLAY_STEP

cdef class Replay:
    cdef public Appender appender
    cdef public object queues
    cdef public object meta
    cdef public set dropped
    cdef public unsigned long long index_from
    cdef public unsigned long long meta_from
    cdef public list operations
    cdef public object received
    cdef public Py_ssize_t records

    @cython.locals(stop=Py_ssize_t, place=Py_ssize_t, last=Py_ssize_t, base="long long", index=cython.bint, tables=cython.bint, kind=int)
    cpdef frame(self, bytes data, Py_ssize_t at, Py_ssize_t length, unsigned long long position)
    @cython.locals(size=Py_ssize_t, flags=int, stored_ms="unsigned long long")
    cdef _index(self, bytes data, Py_ssize_t place, unsigned long long position)
    cdef _plain(self, bytes data, Py_ssize_t place, int kind, bint index, bint tables)
    @cython.locals(queue=IndexedQueue)
    cdef _add(self, unsigned long long queue_id, long long queue_offset, unsigned long long position, Py_ssize_t size, int flags, unsigned long long stored_ms)
    cdef _drop(self, unsigned long long queue_id)
    cdef _derive(self, bytes data, Py_ssize_t place)
    cpdef flush(self, unsigned long long end)
