cimport cython
from lmq_store.api.model cimport Message
from lmq_store.embedded.recent cimport Recent
from lmq_store.embedded.record cimport check_record, decode_message, frame_header_length, get_u32, get_u64, record_size, record_type

cdef Py_ssize_t ENTRY, FRAME_HEADER, MAX_RECORD, MESSAGE, RECORD_HEADER, BLOCK
cdef unsigned int FRAME_MAGIC

cdef class LogReader:
    cdef public object log
    cdef public Recent recent
    cdef public Py_ssize_t max_blocks
    cdef public Py_ssize_t bad_records
    cdef public Py_ssize_t collected_bytes
    cdef public object _blocks
    cdef public bytes _at_block
    cdef public long long _at_base
    cdef public set _reported

    @cython.locals(count=Py_ssize_t, index=Py_ssize_t, size=Py_ssize_t, position="unsigned long long", message=Message, near=bint)
    cpdef Py_ssize_t collect(self, bytes entries, long long first_offset, Py_ssize_t max_bytes, list messages, list offsets) except -1
    @cython.locals(block=bytes, at=Py_ssize_t)
    cpdef Message stored(self, long long position, Py_ssize_t size, bint near)
    @cython.locals(fault=Py_ssize_t)
    cdef Message _checked(self, bytes block, Py_ssize_t at, long long position, Py_ssize_t size)
    @cython.locals(length=Py_ssize_t, first=Py_ssize_t, fault=Py_ssize_t, message=Message)
    cdef long long _scan_block(self, bytes block, Py_ssize_t at, long long position, long long stop, list messages) except -1
