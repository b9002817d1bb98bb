cimport cython

from mqtt_proxy.net.libc_sockets cimport monotonic
from mqtt_proxy.net.link cimport Link
from mqtt_proxy.net.turn cimport Turn

cdef unsigned int READ, WRITE, BROKEN


cdef class Reactor:
    cdef public object loop
    cdef public object on_turn_end
    cdef public object on_turn_sent
    cdef public Turn turn
    cdef public object epoll
    cdef public dict watchers
    cdef public set newcomers
    cdef public bint crowded
    cdef public bytearray shared
    cdef list ready
    cdef Py_ssize_t ready_at
    cdef object linger_timer

    @cython.locals(until=double, count=Py_ssize_t)
    cpdef object run_turn(self)
    @cython.locals(at=Py_ssize_t, count=Py_ssize_t, fd=Py_ssize_t, mask=cython.uint, link=Link, links=list, ready=list, shared=bytearray, handshakes=int, newcomers=set, now=double, newcomers_until=double, crowded=bint)
    cdef bint _read_ready(self, double until) except -1
    @cython.locals(link=Link, fed=list)
    cdef object _end(self)
    @cython.locals(link=Link, dirty=list)
    cdef object _flush_dirty(self)
    cpdef object end_turn(self)
