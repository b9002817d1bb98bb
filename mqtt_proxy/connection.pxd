from mqtt_proxy.net.link cimport Link

cdef class Connection(Link):
    cdef public object broker
    cdef public object session
    cdef public object identity
    cdef public object connect
    cdef public object exchange
    cdef public list waiting
    cdef public bint waiting_window
    cdef public bytes client_id
    cdef public int version
    cdef public int phase
    cdef public int partition
    cdef public long long keep_alive_ms
    cdef public long long last_read_ms
    cdef public long long connected_ms
    cdef public bytearray after_sync
    cdef public int after_count
    cdef public int held
    cdef public int unacked_in
    cdef public int receive_max_in
    cdef public Py_ssize_t max_packet_in
    cdef public Py_ssize_t max_packet_out
    cdef public int alias_max_in
    cdef public int alias_max_out
    cdef public dict aliases_in
    cdef public dict aliases_out
    cdef public object rights
    cdef public object gate
    cdef public object address
    cdef public bint plain
    cdef public bint problem_information
    cdef public bint normal_close
    cdef public bint will_wanted
    cdef public object rate
    cdef public long long paused_until_ms

    cpdef Py_ssize_t received(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef Py_ssize_t needed(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1
    cpdef object lost(self, str reason)
    cpdef object drained(self)
