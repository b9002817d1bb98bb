cimport cython
from lmq_store.api.model cimport LightQueue, Message, Run
from mqtt_proxy.connection cimport Connection
from mqtt_proxy.packets.encoder cimport append_publish1, id_offset
from mqtt_proxy.session.session cimport Reader, Session


cdef class Deliverer:
    cdef public object broker
    cdef public unsigned long long turn
    cdef public long long now_ms
    cdef public list due
    cdef public list journal_due
    cdef public list groups_due
    cdef public unsigned long long sent
    cdef public unsigned long long payload_bytes
    cdef public unsigned long long dropped_expired
    cdef public unsigned long long dropped_too_large

    @cython.locals(turn=cython.ulonglong, touched=list, run=Run, reader=Reader, session=Session, readers=list, queue=LightQueue)
    cpdef live(self, list runs)
    cpdef wake_group(self, object group)
    cpdef wake_groups(self, Session session)
    @cython.locals(conn=Connection, messages=list, count=Py_ssize_t, done=Py_ssize_t, message=Message)
    cdef deliver_run(self, Session session, Reader reader, Run run)
    cdef bytes joined(self, Run run, int version)
    @cython.locals(conn=Connection)
    cdef deliver_runs(self, Session session, list several)
    @cython.locals(qos=int, wire=bytes, packet_id=int, header=int)
    cpdef bint deliver_one(self, Session session, Connection conn, Reader reader, Message message) except -1
    cpdef bint deliver_many(self, Session session, Connection conn, list readers, Message message) except -1
    cdef bint deliver_special(self, Session session, Connection conn, Message message, int qos, bint retain, list readers) except -1
    cpdef bint wants(self, Session session, Reader reader, Message message) except -1
    @cython.locals(left_ms=cython.longlong, expiry_s=cython.longlong, taken=int)
    cpdef bint send(self, Session session, Connection conn, Message message, int qos, bint retain, list readers) except -1
    cpdef wake(self, Session session)
    cpdef pause(self, Session session, int why)
    cpdef mark(self, Session session, Reader reader)
    cpdef journal(self, Session session, bytes events)
