cimport cython
from mqtt_proxy.connection cimport Connection


cdef class Promise:
    cdef public Promises keeper
    cdef public list conns
    cdef public list texts
    cdef public list counts
    cdef public list calls
    cdef public int pending


cdef class Promises:
    cdef public object broker
    cdef public list gated
    cdef public list calls
    cdef public Promise last

    @cython.locals(out=bytearray)
    cpdef bytearray hold(self, Connection conn)
    @cython.locals(ready=Promise, conn=Connection)
    cpdef settle(self, Promise promise)
    @cython.locals(conn=Connection, texts=list, counts=list, index=Py_ssize_t, ended=int)
    cpdef release(self, Promise promise)
    cdef _call(self, object call)
