cimport cython

@cython.no_gc
cdef class LightQueue:
    cdef public unsigned long long id
    cdef public bytes name
    cdef public long long next_offset
    cdef public list readers
    cdef public Run run
    cdef public int holders
    cdef public long long since

@cython.no_gc
cdef class Run:
    cdef public LightQueue queue
    cdef public long long first_offset
    cdef public list messages
    cdef public object wire

@cython.no_gc
cdef class Route:
    cdef public bytes topic
    cdef public unsigned int parent_id
    cdef public list parents
    cdef public list lights

@cython.no_gc
cdef class Message:
    cdef public bytes topic
    cdef public bytes payload
    cdef public bytes properties
    cdef public bytes client_id
    cdef public int qos
    cdef public bint retain
    cdef public bint dup
    cdef public bint will
    cdef public int packet_id
    cdef public int topic_alias
    cdef public long long expiry_s
    cdef public long long expires_ms
    cdef public long long born_ms
    cdef public long long stored_ms
    cdef public unsigned long long session_id
    cdef public int partition
    cdef public long long position
    cdef public unsigned int size
    cdef public Route route
    cdef public bytes wire4
    cdef public bytes wire5

@cython.no_gc
cdef class Pulled:
    cdef public list messages
    cdef public list offsets
    cdef public long long next_offset
