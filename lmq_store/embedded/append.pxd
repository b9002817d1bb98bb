cimport cython
from lmq_store.api.model cimport LightQueue, Message, Route, Run
from lmq_store.embedded.consume_queue cimport IndexedQueue
from lmq_store.embedded.recent cimport Chunk, Recent
from lmq_store.embedded.record cimport message_size, put_dispatch, put_message, put_plain, put_queue, seal_record

cdef Py_ssize_t ENTRY, FRAME_HEADER, QOS_BITS, QUEUE_ENTRY, RECORD_HEADER, RETAIN_BIT, OBJECT_BYTES, MAX_FRAME, FIRST_BUFFER, MAX_QUEUES

cdef class Appender:
    cdef public Recent recent
    cdef public object cut
    cdef public object load
    cdef public object derive
    cdef public bytearray buffer
    cdef public Py_ssize_t capacity
    cdef public Py_ssize_t used
    cdef public Py_ssize_t records
    cdef public unsigned long long frame_position
    cdef public Py_ssize_t room
    cdef public Py_ssize_t max_record
    cdef public unsigned long long stored_ms
    cdef public Py_ssize_t tail_entries
    cdef public list dirty

    cpdef unsigned long long end(self)
    @cython.locals(stored_ms="unsigned long long", runs=list, chunk=Chunk, kept=list, chunk_bytes=Py_ssize_t, message=Message,
                   route=Route, lights=list, count=Py_ssize_t, index=Py_ssize_t, size=Py_ssize_t, position="unsigned long long", at=Py_ssize_t,
                   flags=int, parent=IndexedQueue, light=IndexedQueue, queue_offset="long long", place=Py_ssize_t, run=Run)
    cpdef list append(self, list messages, unsigned long long now_ms)
    @cython.locals(message=Message, route=Route, count=Py_ssize_t, size=Py_ssize_t)
    cdef check(self, list messages)
    cdef unsigned long long begin_record(self, Py_ssize_t size) except? 0
    @cython.locals(need=Py_ssize_t)
    cdef unsigned long long reserve(self, Py_ssize_t size) except? 0
    @cython.locals(start=Py_ssize_t, part=list, size=Py_ssize_t, position="unsigned long long", at=Py_ssize_t, place=Py_ssize_t,
                   light=IndexedQueue, queue_offset="long long")
    cdef dispatch(self, Message message, list lights, int flags, list runs)
    @cython.locals(size=Py_ssize_t, position="unsigned long long")
    cpdef unsigned long long append_plain(self, int record_type, bytes payload, unsigned long long now_ms) except? 0
    cpdef written(self, unsigned long long frame_position, Py_ssize_t room)
    @cython.locals(run=Run)
    cdef hand_over(self, IndexedQueue queue, long long queue_offset, Message message, list runs)
