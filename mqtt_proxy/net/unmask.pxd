cimport cython

@cython.locals(at=Py_ssize_t, size=Py_ssize_t, source="const unsigned char *", target="unsigned char *", key="const unsigned char *", out=bytearray)
cpdef bytearray unmask(bytes data, bytes mask, Py_ssize_t phase)
