cimport cython
from lmq_store.api.model cimport LightQueue
from lmq_store.embedded.record cimport get_u32, get_u64, put_u32, put_u64

cdef Py_ssize_t ENTRY, FIRST_TAIL

@cython.no_gc
cdef class IndexedQueue(LightQueue):
    cdef public bytearray tail
    cdef public long long tail_first
    cdef public Py_ssize_t tail_count
    cdef public Py_ssize_t tail_room
    cdef public bint dirty
    cdef public bint dropped

    @cython.locals(at=Py_ssize_t, tail="unsigned char*")
    cpdef add(self, long long queue_offset, unsigned long long position, unsigned int size, unsigned int flags, unsigned long long stored_ms)
    cpdef grow(self)
    @cython.locals(tail=bytearray, count=Py_ssize_t, low=Py_ssize_t, middle=Py_ssize_t)
    cpdef Py_ssize_t below(self, unsigned long long position)
    cpdef take(self, Py_ssize_t count)
    cpdef bytes entries(self, Py_ssize_t start, Py_ssize_t stop)

cpdef unsigned long long entry_position(bytes run, Py_ssize_t index)
cpdef Py_ssize_t entry_size(bytes run, Py_ssize_t index)
cpdef int entry_flags(bytes run, Py_ssize_t index)
cpdef unsigned long long entry_stored_ms(bytes run, Py_ssize_t index)
