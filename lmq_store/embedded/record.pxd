cimport cython
from libc.string cimport memcpy as copy
from lmq_store.api.model cimport Message

cdef extern from *:
    """
    /* CRC-32 by carry-less multiplication, 64 bytes a step (Gopal et al., "Fast CRC Computation for Generic Polynomials
       Using PCLMULQDQ", Intel 2009; constants of the bit-reflected polynomial 0xEDB88320). */
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define LMQ_FOLD(x, k, next) _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)
    #define LMQ_LOAD(p) _mm_loadu_si128((const __m128i *)(p))
    static int lmq_has_clmul(void) { __builtin_cpu_init(); return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
    /* length: a multiple of 16, at least 64; crc: inverted, as is the answer */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t lmq_clmul_crc(const unsigned char *p, size_t length, uint32_t crc) {
        const __m128i k12 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), k34 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124), poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
        const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
        __m128i a = _mm_xor_si128(LMQ_LOAD(p), _mm_cvtsi32_si128((int) crc)), b = LMQ_LOAD(p + 16), c = LMQ_LOAD(p + 32), d = LMQ_LOAD(p + 48);
        for (p += 64, length -= 64; length >= 64; p += 64, length -= 64) {
            a = LMQ_FOLD(a, k12, LMQ_LOAD(p));
            b = LMQ_FOLD(b, k12, LMQ_LOAD(p + 16));
            c = LMQ_FOLD(c, k12, LMQ_LOAD(p + 32));
            d = LMQ_FOLD(d, k12, LMQ_LOAD(p + 48));
        }
        a = LMQ_FOLD(a, k34, b);
        a = LMQ_FOLD(a, k34, c);
        a = LMQ_FOLD(a, k34, d);
        for (; length >= 16; p += 16, length -= 16) a = LMQ_FOLD(a, k34, LMQ_LOAD(p));
        b = _mm_clmulepi64_si128(a, k34, 0x10);                       /* 128 bits to 64 */
        a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
        b = _mm_srli_si128(a, 4);
        a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low32), k5, 0x00), b);
        b = _mm_clmulepi64_si128(_mm_and_si128(a, low32), poly, 0x10); /* Barrett reduction to 32 */
        b = _mm_clmulepi64_si128(_mm_and_si128(b, low32), poly, 0x00);
        return (uint32_t) _mm_extract_epi32(_mm_xor_si128(a, b), 1);
    }
    #else
    static int lmq_has_clmul(void) { return 0; }
    static uint32_t lmq_clmul_crc(const unsigned char *p, size_t length, uint32_t crc) { (void) p; (void) length; return crc; }
    #endif
    """
    bint has_clmul "lmq_has_clmul"() noexcept
    unsigned int clmul_crc "lmq_clmul_crc"(const unsigned char* p, size_t length, unsigned int crc) noexcept

cdef bint use_clmul
cdef unsigned int crc_tables[4096]
cdef unsigned int FRAME_MAGIC
cdef int RECORD_HEADER, RECORD_MAGIC, RECORD_VERSION, FRAME_HEADER, MESSAGE, QOS_BITS, RETAIN_BIT, WILL_BIT, PROPERTIES_BIT, DUP_BIT, QUEUE_ENTRY, AT_CRC, AT_MAGIC, AT_VERSION, AT_TYPE, AT_FLAGS, AT_TOPIC_LENGTH, AT_POSITION, AT_STORED_MS, AT_BORN_MS, AT_EXPIRES_MS, AT_PARENT_ID, AT_PARTITION, AT_PACKET_ID, AT_PARENT_OFFSET, AT_SESSION_ID, AT_PAYLOAD_LENGTH, AT_CLIENT_LENGTH, AT_QUEUE_COUNT, AT_PROPERTIES_LENGTH, CUT_SHORT, DISPATCH, ENTRY, BAD_MAGIC, BAD_POSITION, BAD_CRC, BAD_LENGTHS

cdef void put_u16(unsigned char* buf, Py_ssize_t at, unsigned int value) noexcept
cdef void put_u32(unsigned char* buf, Py_ssize_t at, unsigned int value) noexcept
cdef void put_u64(unsigned char* buf, Py_ssize_t at, unsigned long long value) noexcept
cdef unsigned int get_u16(const unsigned char* buf, Py_ssize_t at) noexcept
@cython.locals(value=cython.uint)
cdef unsigned int get_u32(const unsigned char* buf, Py_ssize_t at) noexcept
@cython.locals(value=cython.ulonglong)
cdef unsigned long long get_u64(const unsigned char* buf, Py_ssize_t at) noexcept
cdef void put_bytes(unsigned char* buf, Py_ssize_t at, bytes value, Py_ssize_t length)

@cython.locals(index=cython.uint, value=cython.uint, before=cython.uint)
cdef _fill_crc_tables()
@cython.locals(crc=cython.uint, at=Py_ssize_t, whole=Py_ssize_t, a=cython.uint, b=cython.uint, c=cython.uint, d=cython.uint)
cdef unsigned int crc32(const unsigned char* buf, Py_ssize_t start, Py_ssize_t end) noexcept
cpdef unsigned int crc_of(bytes data)

cpdef Py_ssize_t message_size(Message message, Py_ssize_t queue_count)
@cython.locals(topic=bytes, payload=bytes, client_id=bytes, properties=bytes, topic_length=Py_ssize_t,
               payload_length=Py_ssize_t, client_length=Py_ssize_t, properties_length=Py_ssize_t, flags=int)
cdef Py_ssize_t put_message(unsigned char* buf, Py_ssize_t at, Message message, unsigned int parent_id, unsigned long long parent_offset, unsigned int queue_count) except -1
cdef void put_queue(unsigned char* buf, Py_ssize_t at, unsigned long long queue_id, unsigned long long queue_offset) noexcept
cdef void seal_record(unsigned char* buf, Py_ssize_t at, Py_ssize_t size) noexcept
cdef Py_ssize_t put_dispatch(unsigned char* buf, Py_ssize_t at, unsigned long long position, Py_ssize_t size, Message message, unsigned int flags, unsigned int queue_count) except -1
@cython.locals(size=Py_ssize_t)
cpdef put_plain(bytearray buf, Py_ssize_t at, int record_type, unsigned long long position, unsigned long long stored_ms, bytes payload)
@cython.locals(size=Py_ssize_t, in_log=Py_ssize_t, buf=bytearray)
cpdef bytes encode_message(Message message, unsigned int parent_id)
cpdef put_frame_header(bytearray buf, Py_ssize_t at, unsigned int length, unsigned long long synced_end, unsigned long long position, unsigned int records)
@cython.locals(length=Py_ssize_t)
cpdef Py_ssize_t frame_header_length(bytes buf, Py_ssize_t at, Py_ssize_t end, unsigned long long position)
cpdef unsigned long long frame_synced_end(bytes buf, Py_ssize_t at)
cpdef unsigned int frame_records(bytes buf, Py_ssize_t at)
@cython.locals(size=Py_ssize_t, lengths=Py_ssize_t)
cpdef Py_ssize_t check_record(bytes buf, Py_ssize_t at, Py_ssize_t end, unsigned long long position)
@cython.locals(length=Py_ssize_t, stop=Py_ssize_t, place=Py_ssize_t, count=Py_ssize_t, size=Py_ssize_t)
cpdef Py_ssize_t check_frame(bytes buf, Py_ssize_t at, Py_ssize_t end, unsigned long long position)
cpdef Py_ssize_t record_size(bytes buf, Py_ssize_t at)
cpdef int record_type(bytes buf, Py_ssize_t at)
cpdef int record_flags(bytes buf, Py_ssize_t at)
@cython.locals(start=Py_ssize_t)
cpdef bytes record_payload(bytes buf, Py_ssize_t at)
cpdef unsigned long long record_stored_ms(bytes buf, Py_ssize_t at)
cpdef tuple record_parent(bytes buf, Py_ssize_t at)
@cython.locals(count=Py_ssize_t, place=Py_ssize_t)
cpdef list record_queues(bytes buf, Py_ssize_t at)
@cython.locals(message=Message, flags=int, start=Py_ssize_t, stop=Py_ssize_t, data="const unsigned char*")
cpdef Message decode_message(bytes buf, Py_ssize_t at)
