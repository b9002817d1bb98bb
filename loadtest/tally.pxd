cimport cython
from loadtest.histogram cimport Histogram
from loadtest.sequences cimport SequenceTable
from loadtest.stamp cimport Stamp, mix

cdef class Row:
    cdef public Py_ssize_t first
    cdef public Py_ssize_t number
    cdef public Py_ssize_t cell
    cdef public int qos
    cdef public bint group

cdef class Tally:
    cdef public Stamp stamp
    cdef public Py_ssize_t publishers
    cdef public SequenceTable seen
    cdef public SequenceTable acknowledged
    cdef public unsigned long long[::1] board
    cdef public Py_ssize_t row_at
    cdef public int workers
    cdef public bytearray publisher_qos
    cdef public list publisher_topics
    cdef public bytearray inbox
    cdef public bytearray outbox
    cdef public Py_ssize_t out_at
    cdef public long long now
    cdef public bint ledger
    cdef public bint measure_latency
    cdef public bint running
    cdef public long long measured_from
    cdef public long long measured_until
    cdef public long long credit
    cdef public double fan
    cdef public bint track_epochs
    cdef public set resent
    cdef public set rejected_numbers
    cdef public dict repeats
    cdef public set flagged_firsts
    cdef public list blocked
    cdef public Histogram ack
    cdef public Histogram send_to_ack
    cdef public Histogram end_to_end
    cdef public Histogram second
    cdef public Histogram send_late
    cdef public Histogram connect
    cdef public Histogram subscribe
    cdef public long long sent, acked, rejected, delivered
    cdef public long long measured_sent, measured_acked, measured_delivered
    cdef public long long duplicate, redelivered, reordered
    cdef public long long corrupt, foreign, phantom, misrouted, retained_repeats
    cdef public long long retransmitted, protocol_errors
    cdef public long long last_sent, last_acked, first_delivered, last_delivered, last_pong
    cdef public long long in_flight

    @cython.locals(total=cython.longlong, worker=Py_ssize_t)
    cpdef long long epoch(self)
    cpdef long long next_epoch(self)
    cpdef publish_totals(self)
    @cython.locals(sent=cython.longlong, received=cython.longlong, worker=Py_ssize_t, base=Py_ssize_t)
    cpdef bint credit_left(self)
    @cython.locals(verdict=cython.int, publisher=cython.uint, number=cython.ulonglong, place=Py_ssize_t, due=cython.longlong, topics=cython.longlong)
    cpdef deliver(self, Row row, unsigned long long[::1] tops, bytearray frame, Py_ssize_t at, Py_ssize_t size, int flags)
    cdef _count_delivery(self)
    cdef _repeat(self, Row row, unsigned int publisher, unsigned long long number, int flags)
    @cython.locals(topics=cython.longlong, topic=cython.longlong, higher=cython.ulonglong)
    cdef bint _same_topic_above(self, Py_ssize_t cell, unsigned int publisher, unsigned long long number)

cpdef long long topic_index(unsigned long long publisher, unsigned long long number, long long topics)
