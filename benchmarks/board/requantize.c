/* Cost of one output's requantization, loop by loop: each reads an accumulator and stores a code, constants stay in
 * registers. The loop that only reads accumulators is what the others have too. Numbers come as -D from requantize.py. */
#include "board.h"
#include "rt_requantize.h"

enum { N = 1000 };
#define NOINLINE static __attribute__((noinline))

static int32_t acc[N];
static int8_t got[N];

typedef struct {
    int32_t m, r, parity, window, zero_point, lo, hi;
    uint32_t k, s, scale_bits;
} constants_t;
static const constants_t form_a = {A_M, A_R, 0, 0, ZERO_POINT, -100, 100, A_K, A_S, SCALE_BITS};
static const constants_t form_b = {B_M, B_R, B_PARITY, 0, ZERO_POINT, -128, 127, B_K, B_S, TIES_BITS};
static const constants_t form_b1 = {B1_M, B1_R, B1_PARITY, 0, ZERO_POINT - 1, -128, 127, B1_K, B1_S, TIES_BITS};
static const constants_t form_f = {F_M, F_R, 0, F_WINDOW, ZERO_POINT, -128, 127, F_K, F_S, TIES_BITS};
static const constants_t doubling = {TWICE_M, 0, 0, 0, ZERO_POINT, -128, 127, TWICE_LEFT, TWICE_RIGHT, 0};

/* The same pointer, and the compiler no longer knows what's there. */
static inline const constants_t *hide(const constants_t *p)
{
    __asm volatile("" : "+r"(p));
    return p;
}

NOINLINE void only_read(const int32_t *a, const int32_t *end, int8_t *y)
{
    (void)y;
    do
        __asm volatile("" ::"r"(*a++));
    while (a != end);
}

NOINLINE void run_a(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&form_a);
    const int32_t m = q->m, r = q->r;
    const uint32_t k = q->k, s = q->s;
    do
        *y++ = rt_saturate_s8(rt_form_a(*a++, m, r, k, s));
    while (a != end);
}

NOINLINE void run_a_bounds(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&form_a);
    const int32_t m = q->m, r = q->r, lo = q->lo, hi = q->hi;
    const uint32_t k = q->k, s = q->s;
    do
        *y++ = rt_limit_s8(rt_form_a(*a++, m, r, k, s), lo, hi);
    while (a != end);
}

NOINLINE void run_b(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&form_b);
    const int32_t m = q->m, r = q->r, parity = q->parity;
    const uint32_t k = q->k, s = q->s;
    do
        *y++ = rt_saturate_s8(rt_form_b(*a++, m, r, parity, k, s, 0));
    while (a != end);
}

NOINLINE void run_b_odd(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&form_b1);
    const int32_t m = q->m, r = q->r, parity = q->parity;
    const uint32_t k = q->k, s = q->s;
    do
        *y++ = rt_saturate_s8(rt_form_b(*a++, m, r, parity, k, s, -1));
    while (a != end);
}

NOINLINE void run_f(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&form_f);
    const int32_t m = q->m, r = q->r, window = q->window, zero_point = q->zero_point;
    const uint32_t k = q->k, s = q->s, bits = q->scale_bits;
    do
        *y++ = rt_saturate_s8(rt_form_f(*a++, m, r, k, s, window, bits, zero_point));
    while (a != end);
}

NOINLINE void run_e(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&form_f);
    const int32_t zero_point = q->zero_point;
    const uint32_t bits = q->scale_bits;
    do
        *y++ = rt_saturate_s8(rt_requantize_slow(*a++, bits, zero_point));
    while (a != end);
}

/* The usual way, as gemmlowp and the TensorFlow Lite reference kernels define it: two roundings. */
static inline int32_t round_twice(int32_t a, int32_t m, uint32_t left, uint32_t right)
{
    const int64_t product = (int64_t)(int32_t)((uint32_t)a << left) * m;
    const int32_t high = (int32_t)((product + (product >= 0 ? 1 << 30 : 1 - (1 << 30))) / ((int64_t)1 << 31));
    const int32_t mask = (int32_t)((1u << right) - 1u), rest = high & mask;
    return (high >> right) + (rest > (mask >> 1) + (high < 0));
}

/* The same with the first rounding half up, as optimized kernels do it. */
static inline int32_t round_twice_fast(int32_t a, int32_t m, uint32_t left, uint32_t right)
{
    const int64_t product = (int64_t)(int32_t)((uint32_t)a << left) * m + (1 << 30);
    const int32_t high = (int32_t)(product >> 31);
    const int32_t mask = (int32_t)((1u << right) - 1u), rest = high & mask;
    return (high >> right) + (rest > (mask >> 1) + (high < 0));
}

NOINLINE void run_twice(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&doubling);
    const int32_t m = q->m, zero_point = q->zero_point;
    const uint32_t left = q->k, right = q->s;
    do
        *y++ = rt_saturate_s8(round_twice(*a++, m, left, right) + zero_point);
    while (a != end);
}

NOINLINE void run_twice_fast(const int32_t *a, const int32_t *end, int8_t *y)
{
    const constants_t *q = hide(&doubling);
    const int32_t m = q->m, zero_point = q->zero_point;
    const uint32_t left = q->k, right = q->s;
    do
        *y++ = rt_saturate_s8(round_twice_fast(*a++, m, left, right) + zero_point);
    while (a != end);
}

static int8_t limit(int32_t code, int32_t lo, int32_t hi)
{
    return (int8_t)(code < lo ? lo : code > hi ? hi : code);
}

static void report(const char *name, uint64_t ticks, uint32_t scale_bits, int32_t zero_point, int32_t lo, int32_t hi)
{
    uint32_t wrong = 0;
    for (int i = 0; i < N; ++i)
        wrong += got[i] != limit(rt_requantize_slow(acc[i], scale_bits, zero_point), lo, hi);
    board_print(name, ticks);
    board_write("wrong_");
    board_print(name, wrong);
}

#define COST(name, bits, zero_point, lo, hi)                            \
    do {                                                      \
        uint64_t ticks_;                                      \
        BOARD_MEASURE(ticks_, name(acc, acc + N, got));       \
        report(#name, ticks_, bits, zero_point, lo, hi);                 \
    } while (0)

int board_main(void)
{
    uint32_t x = 2463534242u, sum = 2166136261u;
    uint64_t ticks;

    for (int i = 0; i < N; ++i) { /* Marsaglia's xorshift32 */
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        acc[i] = (int32_t)x >> ACC_SHIFT;
        sum = (sum ^ (uint8_t)limit(rt_requantize_slow(acc[i], TIES_BITS, ZERO_POINT), -128, 127)) * 16777619u;
    }
    board_print("checksum", sum); /* FNV-1a: Python compares it with the reference's */
    board_calibrate();
    BOARD_MEASURE(ticks, only_read(acc, acc + N, got));
    board_print("only_read", ticks);
    COST(run_a, SCALE_BITS, ZERO_POINT, -128, 127);
    COST(run_a_bounds, SCALE_BITS, ZERO_POINT, -100, 100);
    COST(run_b, TIES_BITS, ZERO_POINT, -128, 127);
    COST(run_b_odd, TIES_BITS, ZERO_POINT - 1, -128, 127);
    COST(run_f, TIES_BITS, ZERO_POINT, -128, 127);
    COST(run_e, TIES_BITS, ZERO_POINT, -128, 127);
    COST(run_twice, TIES_BITS, ZERO_POINT, -128, 127);
    COST(run_twice_fast, TIES_BITS, ZERO_POINT, -128, 127);
    board_clock_stop();
    return 0;
}
