cimport cython

cdef unsigned int[::1] CRC_TABLE

@cython.locals(value=cython.uint, index=Py_ssize_t)
cdef unsigned int crc20(unsigned char* b, Py_ssize_t at, unsigned int crc) noexcept
@cython.locals(value=cython.ulonglong)
cpdef unsigned long long mix(unsigned long long number, unsigned long long salt) noexcept
@cython.locals(index=Py_ssize_t)
cdef void put_number(unsigned char* b, Py_ssize_t at, unsigned long long value, int size) noexcept
@cython.locals(index=Py_ssize_t, value=cython.ulonglong)
cdef unsigned long long get_number(unsigned char* b, Py_ssize_t at, int size) noexcept
cdef unsigned long long shifted(unsigned long long value, int by) noexcept
cdef void put_stamp(unsigned char* b, Py_ssize_t at, unsigned int run, unsigned int publisher, unsigned long long number, unsigned long long due, unsigned int crc) noexcept
@cython.locals(index=Py_ssize_t, high=cython.uchar, low=cython.uchar)
cdef void put_hex(unsigned char* b, Py_ssize_t at, unsigned char* raw) noexcept
@cython.locals(index=Py_ssize_t, byte=cython.uchar, digit=cython.uchar)
cdef bint get_hex(unsigned char* b, Py_ssize_t at, unsigned char* raw) noexcept
@cython.locals(index=Py_ssize_t, bits=cython.uchar)
cdef bint all_zero(unsigned char* b, Py_ssize_t at, Py_ssize_t size) noexcept

cdef class Stamp:
    cdef public unsigned int run
    cdef public unsigned int publishers
    cdef public unsigned int publisher
    cdef public unsigned long long number
    cdef public long long due
    cdef public bytearray raw
    cdef public dict zero_crcs

    @cython.locals(ours=cython.bint, crc=cython.uint)
    cpdef int read(self, bytearray frame, Py_ssize_t at, Py_ssize_t size) except -1
    cdef int _other_run(self, bytearray frame, Py_ssize_t at, Py_ssize_t size, unsigned int crc) except -1
    cdef int _short(self, bytearray frame, Py_ssize_t at, Py_ssize_t size) except -1
    @cython.locals(crc=cython.uint, good=cython.bint)
    cdef int _read_json(self, bytearray frame, Py_ssize_t at, Py_ssize_t size) except -1
    cdef unsigned int _zero_crc(self, Py_ssize_t size) except? 0
