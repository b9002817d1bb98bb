cimport cython

cdef class Scattered:
    cdef public long long base
    cdef public long long start
    cdef public bytearray bits
    cdef public long long count
    cdef public long long top
    cdef public set far

    @cython.locals(place=cython.longlong)
    cpdef bint has(self, long long number)
    @cython.locals(place=cython.longlong, byte=Py_ssize_t, mask=cython.int, verdict=cython.int)
    cpdef int add(self, long long number) except -1
    cdef _grow(self, Py_ssize_t byte)
    @cython.locals(size=Py_ssize_t, place=cython.longlong)
    cdef _advance(self)
    cdef _adopt(self)
    cpdef bint complete(self)

cdef class SequenceTable:
    cdef public unsigned long long[::1] next_numbers
    cdef public unsigned char[::1] slow
    cdef public dict scattered

    cpdef int add(self, Py_ssize_t cell, unsigned long long number) except -1
    @cython.locals(kept=Scattered, verdict=cython.int)
    cdef int _add_scattered(self, Py_ssize_t cell, unsigned long long number) except -1
    @cython.locals(kept=Scattered)
    cpdef bint has(self, Py_ssize_t cell, unsigned long long number)
    @cython.locals(kept=Scattered)
    cpdef unsigned long long count(self, Py_ssize_t cell)
    @cython.locals(kept=Scattered)
    cpdef unsigned long long top(self, Py_ssize_t cell)
