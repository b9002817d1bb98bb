cimport cython

cdef dict known_levels

cdef class Node:
    cdef public bytes level
    cdef public bytes tail
    cdef public object value
    cdef public object rest
    cdef public Node plus
    cdef public Node child
    cdef public Node sibling
    cdef public dict children

cdef class FilterTrie:
    cdef public Node root
    cdef public Py_ssize_t count

    cpdef clear(self)

    @cython.locals(node=Node, child=Node, end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, level=bytes)
    cpdef insert(self, bytes topic_filter, object value)

    @cython.locals(node=Node, child=Node, end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, level=bytes)
    cpdef get(self, bytes topic_filter)

    @cython.locals(node=Node, child=Node, end=Py_ssize_t, at=Py_ssize_t, stop=Py_ssize_t, level=bytes, path=list)
    cpdef remove(self, bytes topic_filter)

    @cython.locals(root=Node, child=Node, end=Py_ssize_t, stop=Py_ssize_t, found=list)
    cpdef list match(self, bytes topic)

cdef Py_ssize_t level_end(unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

@cython.locals(child=Node)
cdef Node child_named(Node node, bytes level)

@cython.locals(leaf=Node)
cdef Node new_leaf(bytes level, bytes tail, object value)

@cython.locals(length=Py_ssize_t, following=Node)
cdef int attach(Node node, Node child) except -1

@cython.locals(child=Node, following=Node, children=dict)
cdef int chain_to_dictionary(Node node) except -1

@cython.locals(before=Node)
cdef int detach(Node node, Node child) except -1

@cython.locals(tail=bytes, end=Py_ssize_t, stop=Py_ssize_t)
cdef int split(Node node) except -1

@cython.locals(child=Node, stop=Py_ssize_t)
cdef int collect(Node node, unsigned char* p, Py_ssize_t at, Py_ssize_t end, list found) except -1

@cython.locals(place=Py_ssize_t)
cdef bint tail_matches(unsigned char* tail, Py_ssize_t size, unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

cpdef bint filter_matches(bytes topic_filter, bytes topic)
