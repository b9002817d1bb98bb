cimport cython
from lmq_store.api.model cimport Message, Pulled
from mqtt_proxy.connection cimport Connection
from mqtt_proxy.flows.deliver cimport Deliverer
from mqtt_proxy.session.session cimport Reader, Session


cdef class Merge:
    cdef public long long horizon
    cdef public int chunk
    cdef public list heads
    cdef public list readers
    cdef public Py_ssize_t started


cdef class ResendCursor:
    cdef public CatchUp catch_up
    cdef public object waiting


cdef class CatchUp:
    cdef public object broker
    cdef public Deliverer deliverer
    cdef public unsigned long long skipped_qos0

    @cython.locals(session=Session)
    cpdef pump_due(self)
    @cython.locals(conn=Connection, budget=int, count=int)
    cdef pump(self, Session session)
    @cython.locals(pulled=Pulled, messages=list, offsets=list, message=Message, room=int, wanted=int, count=int)
    cdef int pump_one(self, Session session, Connection conn, Reader reader) except -2
    cdef bint skipped(self, Session session, Reader reader, Message message, long long queue_offset) except -1
    cpdef Merge new_merge(self, list behind)
    @cython.locals(merge=Merge, count=Py_ssize_t, stop=Py_ssize_t)
    cdef bint start_merge(self, Session session) except -1
    cdef refill(self, Merge merge, int number, Reader reader)
    @cython.locals(merge=Merge)
    cdef int pump_merge(self, Session session, Connection conn) except -2
