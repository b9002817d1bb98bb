cimport cython
from loadtest.publisher cimport put_ack, put_length
from loadtest.socket_io cimport copy, receive, transmit

cdef class Hub:
    cdef public bytearray inbox
    cdef public list subscriptions
    cdef public dict matched
    cdef public list dirty
    cdef public list blocked
    cdef public long long dropped
    cdef public long long packets

    cpdef list match(self, bytes topic)
    cpdef forget(self, SinkLink link)

cdef class SinkLink:
    cdef public Hub hub
    cdef public int fd
    cdef public int version
    cdef public bytearray outbox
    cdef public Py_ssize_t out_at
    cdef public bytes partial
    cdef public bytearray tail
    cdef public int next_id
    cdef public bint is_dirty

    @cython.locals(box=bytearray, keep=Py_ssize_t, partial=bytes, got=Py_ssize_t, end=Py_ssize_t, at=Py_ssize_t)
    cpdef bint readable(self) except -1
    @cython.locals(at=Py_ssize_t, length=Py_ssize_t, body=Py_ssize_t, shift=cython.int, kind=cython.int)
    cpdef Py_ssize_t scan(self, bytearray box, Py_ssize_t end) except -2
    @cython.locals(qos=cython.int, size=Py_ssize_t, at=Py_ssize_t, topic=bytes, links=list, granted=cython.int, link=SinkLink)
    cdef _publish(self, bytearray box, int first, Py_ssize_t body, Py_ssize_t length)
    @cython.locals(extra=cython.int, skip=Py_ssize_t, size=Py_ssize_t, out=bytearray, at=Py_ssize_t)
    cpdef forward(self, bytearray box, Py_ssize_t body, Py_ssize_t head, Py_ssize_t rest, Py_ssize_t rest_size, int qos, int version)
    cpdef mark(self)
    cpdef reserve(self, Py_ssize_t size)
    cdef _answer(self, int first, int packet_id)
    cpdef say(self, bytes frame)
    cdef bint _rare(self, int first, bytes body) except -1
    @cython.locals(size=Py_ssize_t, sent=Py_ssize_t)
    cpdef bint flush(self) except -1
