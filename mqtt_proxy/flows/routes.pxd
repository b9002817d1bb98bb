cimport cython
from lmq_store.api.model cimport LightQueue, Route
from mqtt_proxy.topics.trie cimport FilterTrie

cdef Py_ssize_t ROUTES_BYTES, ROUTE_BYTES, ROUTE_TOPIC_BYTES

cdef class IdBlocks:
    cdef public object broker
    cdef public bytes name
    cdef public unsigned long long next
    cdef public unsigned long long end

cdef class Routes:
    cdef public object broker
    cdef public FilterTrie trie
    cdef public dict parents
    cdef public dict parent_queues
    cdef public list forgotten
    cdef public Py_ssize_t name_bytes
    cdef public Py_ssize_t remembered_bytes
    cdef public object queue_ids
    cdef public Py_ssize_t held
    cdef public int anew
    cdef public dict unheld

    @cython.locals(queue=LightQueue, held=LightQueue, queues=list, key=bytes, topic_filter=bytes, row=bytes, group=bytes)
    cpdef load(self)
    @cython.locals(queue=LightQueue)
    cpdef LightQueue hold(self, bytes topic_filter)
    cpdef release(self, LightQueue queue)
    @cython.locals(routes=dict)
    cpdef free(self, int most)
    cpdef forget(self, bytes topic_filter)
    cpdef forget_all(self)
    cpdef Route route(self, bytes topic)
    @cython.locals(route=Route)
    cpdef Route remember(self, bytes topic)
    @cython.locals(level=bytes, parent=tuple)
    cpdef Route find(self, bytes topic)
    @cython.locals(queues=tuple)
    cpdef tuple parent(self, bytes level)
