cimport cython

@cython.locals(rest=cython.ulonglong, magnitude=cython.int)
cdef Py_ssize_t bucket_index(unsigned long long value) noexcept

cdef class Histogram:
    cdef public unsigned long long[::1] counts
    cdef public unsigned long long number
    cdef public double total
    cdef public long long minimum
    cdef public long long maximum

    cpdef void record(self, long long value, long long times=*) noexcept
    @cython.locals(index=Py_ssize_t)
    cpdef void clear(self) noexcept
    @cython.locals(index=Py_ssize_t)
    cpdef tuple sparse(self)
    @cython.locals(index=Py_ssize_t, seen=cython.ulonglong, wanted=cython.ulonglong)
    cpdef long long percentile(self, double percent)
