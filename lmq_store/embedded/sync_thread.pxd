from libc.errno cimport EINTR, EIO, errno as last_error
from posix.unistd cimport fdatasync, read as read_fd, write as write_fd


cdef inline void sync_until_closed(int request_fd, int answer_fd) noexcept:
    """The loop of the thread, without the interpreter lock."""
    cdef long long request[2]
    cdef long long failed
    cdef int index
    with nogil:
        while True:
            while True:
                got = read_fd(request_fd, request, 16)
                if got >= 0 or last_error != EINTR:
                    break
            if got != 16:
                break
            failed = 0
            for index in range(2):
                if request[index] >= 0 and fdatasync(<int> request[index]) != 0:
                    failed = last_error if last_error != 0 else EIO
            while write_fd(answer_fd, &failed, 8) < 0 and last_error == EINTR:
                pass
