cimport cython
from loadtest.publisher cimport Publisher, put_ack
from loadtest.socket_io cimport copy, receive, transmit
from loadtest.tally cimport Row, Tally

cdef class Client:
    cdef public Tally tally
    cdef public long long index
    cdef public int version
    cdef public object control
    cdef public int fd
    cdef public object link
    cdef public int state
    cdef public Py_ssize_t packet_max
    cdef public bytes partial
    cdef public bytearray tail
    cdef public Publisher publisher
    cdef public object responder
    cdef public Row row
    cdef public object tops
    cdef public set received_ids
    cdef public int pings
    cdef public long long last_sent
    cdef public int group
    cdef public object work
    cdef public long long turn

    @cython.locals(tally=Tally, keep=Py_ssize_t, box=bytearray, room=Py_ssize_t, got=Py_ssize_t, used=Py_ssize_t)
    cpdef int readable(self) except -1
    @cython.locals(partial=bytes, box=bytearray)
    cdef Py_ssize_t _restore_partial(self) except -1
    @cython.locals(tally=Tally, at=Py_ssize_t, length=Py_ssize_t, body=Py_ssize_t, first=cython.int, kind=cython.int, reason=cython.int, packet_id=cython.int)
    cpdef Py_ssize_t scan(self, bytearray box, Py_ssize_t end) except -2
    cdef Py_ssize_t _breach(self)
    @cython.locals(length=Py_ssize_t, shift=cython.int, place=Py_ssize_t)
    cdef tuple _long_length(self, bytearray box, Py_ssize_t at, Py_ssize_t end)
    @cython.locals(end=Py_ssize_t, at=Py_ssize_t, qos=cython.int, packet_id=cython.int)
    cdef bint _publish(self, bytearray box, int first, Py_ssize_t body, Py_ssize_t length) except -1
    cdef Py_ssize_t _skip_properties(self, bytearray box, Py_ssize_t at, Py_ssize_t end) except -1
    @cython.locals(tally=Tally)
    cdef _answer(self, int first, int packet_id)
    @cython.locals(tally=Tally, size=Py_ssize_t, sent=Py_ssize_t)
    cpdef int flush(self) except -1
    @cython.locals(sent=Py_ssize_t, tail=bytearray)
    cpdef int writable(self) except -1
    cpdef int pump(self) except -1
    cpdef bint pump_some(self) except -1
    @cython.locals(tally=Tally)
    cpdef int put(self, bytes frame) except -1
    cpdef forget(self)
