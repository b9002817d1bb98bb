# The compiled variant of syscalls.py: the same names and answers, straight from libc.
#
# The interpreter lock is held over these calls: none of them waits, and giving the lock away and taking it again costs
# more than the shorter ones.

cdef extern from *:
    """
    #ifndef LMQ_LIBC_SOCKETS
    #define LMQ_LIBC_SOCKETS
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <arpa/inet.h>
    #include <errno.h>
    #include <netinet/in.h>
    #include <stdio.h>
    #include <sys/socket.h>
    #include <time.h>

    static inline Py_ssize_t lmq_receive(int fd, PyObject *buffer, Py_ssize_t at, Py_ssize_t room) {
        ssize_t n;
        if (at < 0 || room < 0 || at + room > PyByteArray_GET_SIZE(buffer)) return -EINVAL;
        do n = recv(fd, PyByteArray_AS_STRING(buffer) + at, (size_t)room, MSG_DONTWAIT); while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
    }

    static inline Py_ssize_t lmq_transmit(int fd, PyObject *data, Py_ssize_t at) {
        const char *start;
        Py_ssize_t size;
        ssize_t n;
        if (PyBytes_Check(data)) { start = PyBytes_AS_STRING(data); size = PyBytes_GET_SIZE(data); }
        else if (PyByteArray_Check(data)) { start = PyByteArray_AS_STRING(data); size = PyByteArray_GET_SIZE(data); }
        else return -EINVAL;
        if (at < 0 || at > size) return -EINVAL;
        do n = send(fd, start + at, (size_t)(size - at), MSG_DONTWAIT | MSG_NOSIGNAL); while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
    }

    static inline PyObject *lmq_accept(int listening) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof peer;
        char host[INET6_ADDRSTRLEN + 2], text[INET6_ADDRSTRLEN + 16];
        int fd;
        peer.ss_family = AF_UNSPEC;
        do fd = accept4(listening, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC); while (fd < 0 && errno == EINTR);
        if (fd < 0) return Py_BuildValue("(is)", -errno, "");
        if (peer.ss_family == AF_INET) {
            struct sockaddr_in *four = (struct sockaddr_in *)&peer;
            inet_ntop(AF_INET, &four->sin_addr, host, sizeof host);
            snprintf(text, sizeof text, "%s:%u", host, ntohs(four->sin_port));
        } else if (peer.ss_family == AF_INET6) {
            struct sockaddr_in6 *six = (struct sockaddr_in6 *)&peer;
            inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host);
            snprintf(text, sizeof text, "[%s]:%u", host, ntohs(six->sin6_port));
        } else
            snprintf(text, sizeof text, "unix");
        return Py_BuildValue("(is)", fd, text);
    }

    static inline int lmq_end_sending(int fd) { return shutdown(fd, SHUT_WR) == 0; }

    static inline void lmq_reset_at_close(int fd) {
        struct linger at_once = {1, 0};
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }

    static inline double lmq_monotonic(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    }
    #endif
    """
    Py_ssize_t receive "lmq_receive"(int fd, bytearray buffer, Py_ssize_t at, Py_ssize_t room)
    Py_ssize_t transmit "lmq_transmit"(int fd, object data, Py_ssize_t at)
    object accept "lmq_accept"(int fd)
    bint end_sending "lmq_end_sending"(int fd)
    void reset_at_close "lmq_reset_at_close"(int fd)
    double monotonic "lmq_monotonic"()
