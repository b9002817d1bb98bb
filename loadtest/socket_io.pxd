cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memcpy, memset

cdef extern from "<sys/socket.h>" nogil:
    int MSG_NOSIGNAL
    Py_ssize_t recv(int fd, void* buffer, size_t size, int flags)
    Py_ssize_t send(int fd, void* buffer, size_t size, int flags)

cdef inline unsigned char* address(unsigned char* base, Py_ssize_t at) noexcept:
    return base + at

@cython.locals(got=Py_ssize_t)
cpdef Py_ssize_t receive(int fd, unsigned char* buffer, Py_ssize_t at, Py_ssize_t room) except? -9
@cython.locals(sent=Py_ssize_t)
cpdef Py_ssize_t transmit(int fd, unsigned char* buffer, Py_ssize_t at, Py_ssize_t size) except? -9
cdef void copy(unsigned char* target, Py_ssize_t at, unsigned char* source, Py_ssize_t start, Py_ssize_t size) noexcept
cdef void clear(unsigned char* target, Py_ssize_t at, Py_ssize_t size) noexcept
