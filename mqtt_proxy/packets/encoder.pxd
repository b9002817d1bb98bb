cimport cython
from libc.string cimport memcpy
from cpython.bytearray cimport PyByteArray_Resize as grow
from cpython.bytes cimport PyBytes_AS_STRING as as_chars, PyBytes_FromStringAndSize as new_bytes
from lmq_store.api.model cimport Message

cpdef Py_ssize_t varint_size(Py_ssize_t value) noexcept

cdef Py_ssize_t put_varint(unsigned char* p, Py_ssize_t at, Py_ssize_t value) noexcept

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t put_bytes(unsigned char* p, Py_ssize_t at, bytes data) noexcept

@cython.locals(size=Py_ssize_t)
cdef Py_ssize_t body_size(Message message, int header, bytes properties)

@cython.locals(length=Py_ssize_t)
cdef int put_frame(unsigned char* p, Py_ssize_t at, Py_ssize_t size, Message message, int header, int packet_id, bytes properties) except -1

@cython.locals(size=Py_ssize_t, whole=Py_ssize_t, out=bytes)
cdef bytes frame(Message message, int header, int packet_id, bytes properties)

@cython.locals(size=Py_ssize_t, whole=Py_ssize_t, at=Py_ssize_t, properties=bytes)
cpdef append_publish(bytearray out, Message message, int version, int header, int packet_id)

@cython.locals(header=int, properties=bytes)
cpdef bytes publish(Message message, int version, int qos, bint retain, bint dup, int packet_id, tuple subscription_ids=*, int topic_alias=*,
                    bint send_topic=*, long long expiry_s=*, bytes extra=*)

@cython.locals(wire=bytes)
cpdef bytes wire4(Message message)

@cython.locals(wire=bytes)
cpdef bytes wire5(Message message)

cpdef bytes wire4_q0(Message message)

cpdef bytes wire5_q0(Message message)

cpdef Py_ssize_t id_offset(bytes wire, Py_ssize_t topic_length)

@cython.locals(at=Py_ssize_t)
cdef Py_ssize_t wire_id_at(unsigned char* p, Py_ssize_t topic_length) noexcept

@cython.locals(at=Py_ssize_t)
cpdef append_publish1(bytearray out, bytes wire, int packet_id, Py_ssize_t id_at, int header)

cdef void put_publish1(unsigned char* p, Py_ssize_t at, bytes wire, int packet_id, Py_ssize_t id_at, int header) noexcept

cpdef int ack_header(int packet_type) noexcept

cpdef bytes ack(int packet_type, int packet_id)

@cython.locals(at=Py_ssize_t)
cpdef append_ack(bytearray out, int packet_type, int packet_id)

cdef void put_ack(unsigned char* p, Py_ssize_t at, int packet_type, int packet_id) noexcept
