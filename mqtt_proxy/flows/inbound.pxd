cimport cython
from lmq_store.api.model cimport Message, Route
from mqtt_proxy.connection cimport Connection
from mqtt_proxy.flows.acknowledge cimport Acknowledgements
from mqtt_proxy.flows.promise cimport Promises
from mqtt_proxy.packets.encoder cimport append_ack
from mqtt_proxy.session.session cimport Session


cdef class Inbound:
    cdef public object broker
    cdef public dict routes
    cdef public list batch
    cdef public Promises promises
    cdef public Acknowledgements acknowledgements
    cdef public bint guarded
    cdef public unsigned long long received
    cdef public unsigned long long payload_bytes
    cdef public unsigned long long packets
    cdef public unsigned long long answered

    cpdef take(self, Connection conn, list items)
    @cython.locals(session=Session, qos=int, received=set, route=Route)
    cpdef publish(self, Connection conn, Message message)
    cpdef answer(self, Connection conn, int packet_type, int packet_id, int ends)
    @cython.locals(session=Session)
    cdef acknowledgement(self, Connection conn, int packet_type, int packet_id)
    @cython.locals(received=set)
    cdef release(self, Connection conn, Session session, int packet_id)
