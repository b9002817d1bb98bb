cimport cython
from loadtest.client cimport Client
from loadtest.histogram cimport Histogram
from loadtest.publisher cimport Publisher

cdef class Schedule:
    cdef public list clients
    cdef public Histogram late
    cdef public long long round
    cdef public Py_ssize_t place
    cdef public long long next_due
    cdef public long long until

    @cython.locals(touched=list, number=Py_ssize_t, client=Client, publisher=Publisher)
    cpdef list advance(self, long long now, long long turn)

@cython.locals(busy=Py_ssize_t, client=Client)
cpdef Py_ssize_t pump_all(list clients) except -1
