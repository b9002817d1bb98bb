cimport cython
from lmq_store.embedded.append cimport Appender
from lmq_store.embedded.consume_queue cimport IndexedQueue

cdef Py_ssize_t ENTRY, RUN_ENTRIES, STEP_ENTRIES, STEP_SHARE

cdef class LightQueues:
    cdef public object database
    cdef public object high_water
    cdef public dict open
    cdef public unsigned long long flushed_position
    cdef public unsigned long long highest_id
    cdef public unsigned long long _replayed_end
    cdef public list _marks
    cdef public unsigned long long _marked
    cdef public list _cycle
    cdef public long long _cycle_end

    @cython.locals(queue=IndexedQueue, is_new=bint)
    cpdef IndexedQueue queue(self, unsigned long long queue_id, bytes name)
    cpdef long long load_next_offset(self, IndexedQueue queue) except -2
    @cython.locals(queue=IndexedQueue, key=bytes, after=cython.longlong)
    cpdef load_next_offsets(self, list queues)
    @cython.locals(queue=IndexedQueue, most=Py_ssize_t, ripe=Py_ssize_t, count=Py_ssize_t, start=Py_ssize_t, stop=Py_ssize_t, written=Py_ssize_t, ended=bint)
    cpdef bint flush_step(self, Appender appender, unsigned long long durable_end, Py_ssize_t max_queues) except -1
