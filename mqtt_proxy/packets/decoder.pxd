cimport cython
from lmq_store.api.model cimport Message

cdef set known_topics

@cython.locals(p=cython.p_uchar, at=Py_ssize_t, body=Py_ssize_t, stop=Py_ssize_t, length=Py_ssize_t, first=int, kind=int, flags=int, digit=int,
               shift=int, packet_id=int)
cpdef Py_ssize_t decode(bytearray buffer, Py_ssize_t start, Py_ssize_t end, int version, Py_ssize_t max_packet, list out, bint from_client=*,
                        int max_properties=*) except -1

@cython.locals(p=cython.p_uchar, at=Py_ssize_t, length=Py_ssize_t, digit=int, shift=int)
cpdef Py_ssize_t frame_length(bytearray buffer, Py_ssize_t start, Py_ssize_t end) except -1

cdef bytes piece(unsigned char* p, Py_ssize_t start, Py_ssize_t stop)

@cython.locals(at=Py_ssize_t, topic_end=Py_ssize_t, topic=bytes, qos=int, packet_id=int, message=Message)
cdef Message publish(unsigned char* p, int first, Py_ssize_t start, Py_ssize_t stop, int version, bint from_client, int max_properties)

cdef check_topic(bytes topic)

@cython.locals(at=Py_ssize_t, digit=int)
cdef bint is_plain_ascii(unsigned char* p, Py_ssize_t size) noexcept

@cython.locals(at=Py_ssize_t, end=Py_ssize_t, length=Py_ssize_t, kept=Py_ssize_t, scan=Py_ssize_t, digit=int, shift=int, identifier=int,
               count=int, seen=cython.ulonglong, bit=cython.ulonglong, expiry_s=cython.longlong, block=bytes)
cdef Py_ssize_t publish_properties(unsigned char* p, Py_ssize_t start, Py_ssize_t stop, Message message, bint from_client, int max_properties) except -1

cdef Py_ssize_t after_binary(unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(stop=Py_ssize_t)
cdef Py_ssize_t after_text(unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1

cdef int check_text(bytes text) except -1

@cython.locals(value=Py_ssize_t, digit=int, shift=int)
cdef Py_ssize_t after_subscription_identifier(unsigned char* p, Py_ssize_t at, Py_ssize_t end) except -1
