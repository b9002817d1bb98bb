cimport cython
from loadtest.socket_io cimport clear, copy
from loadtest.stamp cimport mix, put_hex, put_stamp

cdef class Payload:
    cdef public int kind
    cdef public unsigned int run
    cdef public Py_ssize_t smallest
    cdef public Py_ssize_t largest
    cdef public unsigned int seed
    cdef public list lines
    cdef public bytes pool
    cdef public bytearray raw
    cdef public dict crcs
    cdef public unsigned int json_crc

    cpdef Py_ssize_t size_of(self, unsigned int publisher, unsigned long long number) except -1
    @cython.locals(start=Py_ssize_t, crc=cython.uint)
    cpdef write(self, bytearray out, Py_ssize_t at, Py_ssize_t size, unsigned int publisher, unsigned long long number, unsigned long long due)
    cdef unsigned int _zero_crc(self, Py_ssize_t size) except? 0
    @cython.locals(tail=bytes, line=Py_ssize_t, stamp=bytearray, lead=bytes)
    cdef _write_json(self, bytearray out, Py_ssize_t at, Py_ssize_t size, unsigned int publisher, unsigned long long number, unsigned long long due)
