/* Runs the arithmetic on pseudo-random numbers and prints one hash per part: the same on every target. */
#include <stdio.h>

#include "rt_add_s8.h"
#include "rt_mul_s8.h"
#include "rt_requantize.h"
#include "rt_softmax_s8.h"

#define ROUNDS 20000

static uint32_t state = 12345;

static uint32_t next(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

/* A number of random size; one next() per statement, for C leaves the order inside an expression open. */
static int32_t next_int(void)
{
    uint32_t drop = next() % 28u;
    return (int32_t)next() >> drop;
}

static uint32_t mix(uint32_t hash, int32_t value)
{
    return (hash ^ (uint32_t)value) * 16777619u;
}

static uint32_t check_forms(void)
{
    uint32_t hash = 2166136261u;
    for (int i = 0; i < ROUNDS; ++i) {
        int32_t acc = next_int();
        uint32_t k = 0, s = 1 + next() % 22u;
        while (k < 8 && acc > -0x20000000 && acc < 0x20000000 && (acc >> (29 - k)) == (acc >> 31))
            ++k;
        int32_t m = (int32_t)(next() >> 2);
        int32_t r = (int32_t)next() >> 3;
        int32_t parity = (int32_t)((next() & (((uint32_t)1 << (s - 1)) - 1u)) << (32 - s));
        int32_t window = (int32_t)(((uint32_t)1 << s) - 1u) & ~(int32_t)(((uint32_t)1 << (s / 2)) - 1u);
        uint32_t exponent = 100 + next() % 40u;
        uint32_t bits = (next() & 0x7FFFFFu) | (exponent << 23);
        hash = mix(hash, rt_add_mulhi(r, acc, m));
        hash = mix(hash, rt_form_a(acc, m, r, k, s));
        hash = mix(hash, rt_form_b(acc, m, r, parity, k, s, -(int32_t)(next() & 1u)));
        hash = mix(hash, rt_form_f(acc, m, r, k, s, window, bits, 5));
        hash = mix(hash, rt_requantize_exact(acc, bits));
        hash = mix(hash, rt_saturate_s8(next_int()));
    }
    return hash;
}

static uint32_t check_tensors(void)
{
    static const rt_add_exception_t pairs[] = {{100, 1}, {300, 2}, {40000, -3}};
    static uint32_t table[256];
    static int32_t difference[256], logs[RT_LOG_STEPS + 1];
    int8_t a[64], b[64], y[64];
    uint32_t hash = 2166136261u;
    rt_add_t add = {300000, -250000, 1 << 20, 3000000, 1000000, 5, 77, pairs, 3, -128, 127, 20, 1, 0};
    rt_mul_t mul = {3, -5, {1234567890, 1 << 19, 1 << 14, 0, 0, 0, -100, 127, 12, 20}};
    rt_softmax_t softmax = {table, 65536, 8, -128, -128, 127};
    rt_log_softmax_t log_softmax = {table, difference, logs, 20, 16, 127, -128, 127};
    uint32_t entry = 1u << 20;
    for (int i = 0; i < 256; ++i, entry -= entry / 20) {
        table[i] = entry;
        difference[i] = i * 30000;
    }
    for (int i = 0; i <= RT_LOG_STEPS; ++i)
        logs[i] = 700000 >> i;
    for (int i = 0; i < ROUNDS / 64; ++i) {
        for (int j = 0; j < 64; ++j) {
            a[j] = (int8_t)(next() >> 24);
            b[j] = (int8_t)(next() >> 24);
        }
        add.wide = (uint8_t)(i & 1);
        add.exception_count = i & 2 ? 3 : 0;
        rt_add_s8(a, b, 64, &add, y);
        for (int j = 0; j < 64; ++j)
            hash = mix(hash, y[j]);
        rt_mul_s8(a, b, 64, &mul, y);
        for (int j = 0; j < 64; ++j)
            hash = mix(hash, y[j]);
        rt_softmax_s8(a, 8, 8, &softmax, y);
        for (int j = 0; j < 64; ++j)
            hash = mix(hash, y[j]);
        rt_log_softmax_s8(b, 4, 16, &log_softmax, b);
        for (int j = 0; j < 64; ++j)
            hash = mix(hash, b[j]);
    }
    return hash;
}

int main(void)
{
    printf("forms %08lx\n", (unsigned long)check_forms());
    printf("tensors %08lx\n", (unsigned long)check_tensors());
    return 0;
}
