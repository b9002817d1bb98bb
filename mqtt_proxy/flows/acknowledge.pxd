from mqtt_proxy.connection cimport Connection
from mqtt_proxy.flows.deliver cimport Deliverer
from mqtt_proxy.session.session cimport Session


cdef class Acknowledgements:
    cdef public object broker
    cdef public Deliverer deliverer

    cpdef acknowledged(self, Session session, Connection conn, int packet_id)
    cpdef received(self, Session session, Connection conn, int packet_id)
    cpdef completed(self, Session session, Connection conn, int packet_id)
    cpdef refused(self, Session session, Connection conn, int packet_type, int packet_id)
    cdef freed(self, Session session, int packet_id)
