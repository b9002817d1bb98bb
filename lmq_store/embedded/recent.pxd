cimport cython
from lmq_store.api.model cimport Message

cdef Py_ssize_t CHUNK_MESSAGES, LOOK_AHEAD

cdef class Chunk:
    cdef public unsigned long long first_position
    cdef public list messages
    cdef public Py_ssize_t bytes

cdef class Recent:
    cdef public Py_ssize_t max_bytes
    cdef public Py_ssize_t bytes
    cdef public list chunks
    cdef public Chunk open
    cdef public Chunk last
    cdef public Py_ssize_t last_index

    @cython.locals(chunk=Chunk)
    cpdef Chunk begin(self, unsigned long long position)
    @cython.locals(drop=Py_ssize_t)
    cpdef trim(self, unsigned long long written_end)
    @cython.locals(chunks=list, messages=list, chunk=Chunk, message=Message, low=Py_ssize_t, high=Py_ssize_t, middle=Py_ssize_t)
    cpdef Message find(self, unsigned long long position)
