cdef class Turn:
    cdef public object epoll
    cdef public list links
    cdef public list dirty
    cdef public list doomed
    cdef public list fed
    cdef public object lingering
    cdef public bint running
    cdef public bint woken
    cdef public bint again
    cdef public object wake
    cdef public object linger_started
    cdef public long long now_ms
    cdef public Py_ssize_t open_links
    cdef public Py_ssize_t high_bytes
    cdef public Py_ssize_t low_bytes
    cdef public Py_ssize_t stall_bytes
    cdef public unsigned long long bytes_received
    cdef public unsigned long long bytes_sent

    cpdef void add(self, object link, int fd)
    cpdef void watch(self, int fd, unsigned int mask)
    cpdef void ask(self)
    cpdef void linger(self, object link)
