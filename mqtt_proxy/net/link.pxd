cimport cython

from mqtt_proxy.net.libc_sockets cimport end_sending, receive, reset_at_close, transmit
from mqtt_proxy.net.turn cimport Turn

cdef int OPEN, CLOSING, CLOSED, BY_OWNER, BY_OUTPUT
cdef unsigned int READ, WRITE


cdef class Link:
    cdef public Turn turn
    cdef public object listener
    cdef public str peer
    cdef public object out
    cdef public bytearray tail
    cdef public object layer
    cdef public object tls_subject
    cdef public long long opened_ms
    cdef public long long moved_ms
    cdef public Py_ssize_t sent
    cdef public Py_ssize_t wanted
    cdef public int fd
    cdef public unsigned char state
    cdef public unsigned char paused
    cdef public bint dirty
    cdef public bint blocked
    cdef public bint stalled

    cpdef Py_ssize_t received(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef Py_ssize_t needed(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef object lost(self, str reason)
    cpdef object drained(self)

    cpdef object start(self)
    cpdef object send(self, bytes data)
    cpdef bytearray out_buffer(self)
    cpdef Py_ssize_t pending_bytes(self)
    cpdef bint congested(self)
    cpdef object pause_reading(self)
    cpdef object resume_reading(self)
    cpdef object close(self, str reason=*)
    cpdef object abort(self, str reason=*)

    @cython.locals(kept=Py_ssize_t, count=Py_ssize_t, end=Py_ssize_t, consumed=Py_ssize_t, tail=bytearray)
    cdef object read(self, bytearray shared)
    @cython.locals(count=Py_ssize_t, size=Py_ssize_t)
    cdef object flush(self)
    cdef object writable(self)
    cdef object feed(self)
    cpdef object fail(self, str reason)
    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, consumed=Py_ssize_t)
    cdef object _read_long(self, bytearray shared, bytearray tail)
    @cython.locals(size=Py_ssize_t, consumed=Py_ssize_t)
    cdef object _present(self, bytearray own)
    cdef object _read_layered(self, bytearray shared)
    cdef object _discard(self, bytearray shared)
    cdef object _keep(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end)
    cdef object _mark(self)
    cdef object _check_stall(self)
    cdef object _sent_all(self)
    cdef object _end_output(self)
    @cython.locals(mask=cython.uint)
    cdef object _rewatch(self)
    cdef object _ended(self, Py_ssize_t count)
    cdef object _release(self)
