cimport cython
from loadtest.payload cimport Payload
from loadtest.socket_io cimport copy
from loadtest.tally cimport Tally, topic_index

cdef class Publisher:
    cdef public Tally tally
    cdef public unsigned int number
    cdef public bytes topic_prefix
    cdef public bytes topic_suffix
    cdef public bytes topic_head
    cdef public long long topics
    cdef public int qos
    cdef public bint retain
    cdef public bytes properties
    cdef public Payload payload
    cdef public Py_ssize_t window
    cdef public Py_ssize_t receive_maximum
    cdef public bint open_loop
    cdef public double due_from
    cdef public double due_step
    cdef public long long next_number
    cdef public long long scheduled
    cdef public long long limit
    cdef public Py_ssize_t in_flight
    cdef public Py_ssize_t outstanding
    cdef public list resend
    cdef public int resend_dup
    cdef public list ack_runs
    cdef public Py_ssize_t slots
    cdef public Py_ssize_t free_head
    cdef public Py_ssize_t free_tail
    cdef public unsigned short[::1] free
    cdef public unsigned long long[::1] slot_number
    cdef public long long[::1] slot_due
    cdef public long long[::1] slot_sent
    cdef public bytearray slot_state

    cpdef _grow(self, Py_ssize_t slots)
    cpdef long long due_of(self, long long number)
    @cython.locals(tally=Tally, added=Py_ssize_t, high=Py_ssize_t)
    cpdef Py_ssize_t pump(self) except -1
    @cython.locals(tally=Tally, number=cython.longlong, now=cython.longlong, due=cython.longlong, packet_id=cython.int)
    cdef _send_next(self)
    @cython.locals(slot=Py_ssize_t)
    cpdef int take_slot(self, long long number, long long due) except -1
    @cython.locals(tally=Tally, out=bytearray, size=Py_ssize_t, head=bytes, topic=bytes, length=Py_ssize_t, at=Py_ssize_t, drawn=cython.longlong)
    cpdef encode(self, long long number, long long due, int packet_id, int dup)
    cpdef put_ack(self, int first, int packet_id)
    @cython.locals(slot=Py_ssize_t, state=cython.int)
    cpdef bint acknowledged(self, int first, int packet_id, int reason) except -1
    @cython.locals(tally=Tally, now=cython.longlong, number=cython.longlong, due=cython.longlong)
    cpdef finish(self, Py_ssize_t slot, bint refused)
    cdef _note_run(self, long long number)
    cpdef reconnected(self, bint session_present)
    @cython.locals(tally=Tally, added=Py_ssize_t, slot=Py_ssize_t)
    cpdef Py_ssize_t _pump_again(self) except -1
    cpdef long long waiting(self)

cdef Py_ssize_t put_length(unsigned char* b, Py_ssize_t at, Py_ssize_t length) noexcept
cdef void put_ack(unsigned char* b, Py_ssize_t at, int first, int packet_id) noexcept
