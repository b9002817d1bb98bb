cimport cython
from lmq_store.api.model cimport LightQueue

cdef class Reader:
    cdef public Session session
    cdef public bytes topic_filter
    cdef public LightQueue queue
    cdef public int qos
    cdef public long long next_offset
    cdef public bint no_local
    cdef public bint retain_as_published
    cdef public unsigned int identifier
    cdef public bint replay
    cdef public object receivable
    cdef public bint plain
    cdef public bint dirty
    cdef public object group

cdef class Session:
    cdef public unsigned long long id
    cdef public bytes client_id
    cdef public int version
    cdef public unsigned int epoch
    cdef public unsigned int expiry_s
    cdef public bint persistent
    cdef public bytes user
    cdef public object connection
    cdef public int state
    cdef public dict subscriptions
    cdef public list readers
    cdef public list groups
    cdef public dict shared
    cdef public dict in_flight
    cdef public int inflight_max
    cdef public int next_packet_id
    cdef public set received
    cdef public set bound
    cdef public long long redelivered_below
    cdef public bytearray journal
    cdef public list cursors
    cdef public object merge
    cdef public long long online_from
    cdef public bint dirty
    cdef public bint pump_due
    cdef public unsigned long long touched_turn
    cdef public Reader touched_reader
    cdef public object touched_run
    cdef public list touched_runs
    @cython.locals(packet_id=int)
    cpdef int take_packet_id(self)
    cpdef int room(self)
