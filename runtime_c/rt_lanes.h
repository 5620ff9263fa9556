/* rt_lanes.h - four int8 in a word, multiplied two at a time: the DSP extension of Cortex-M4, M7, M33 and M55.
 *
 * RT_LANES says that it is worth it. RT_TARGET_LANES selects the plain C twins by hand, so that tests on a host run the
 * same paths; both give the same result for every argument. */
#ifndef RT_LANES_H
#define RT_LANES_H

#include "rt_target.h"

#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#if defined(RT_TARGET_DSP) || defined(RT_TARGET_LANES)
#define RT_LANES
#endif
#endif

#ifdef RT_LANES

/* x[0..3], at any address. The builtin is one load, also where the library's memcpy may not be replaced (-ffreestanding).
 */
static inline uint32_t rt_word(const int8_t *x)
{
    uint32_t word;
    __builtin_memcpy(&word, x, sizeof word);
    return word;
}

#if defined(RT_TARGET_DSP) && !defined(RT_TARGET_LANES)

/* Bytes 0 and 2 as int16 in the low and in the high half. */
static inline uint32_t rt_even(uint32_t x)
{
    uint32_t result;
    __asm__("sxtb16 %0, %1" : "=r"(result) : "r"(x));
    return result;
}

/* Bytes 1 and 3. */
static inline uint32_t rt_odd(uint32_t x)
{
    uint32_t result;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(result) : "r"(x));
    return result;
}

/* sum + low * low + high * high, modulo 2^32. */
static inline uint32_t rt_both(uint32_t a, uint32_t b, uint32_t sum)
{
    uint32_t result;
    __asm__("smlad %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

/* sum + low * low. */
static inline uint32_t rt_low(uint32_t a, uint32_t b, uint32_t sum)
{
    uint32_t result;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

/* sum + high * high. */
static inline uint32_t rt_high(uint32_t a, uint32_t b, uint32_t sum)
{
    uint32_t result;
    __asm__("smlatt %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(b), "r"(sum));
    return result;
}

#else

static inline uint32_t rt_even(uint32_t x)
{
    return (uint32_t)(uint16_t)(int8_t)x | (uint32_t)(uint16_t)(int8_t)(x >> 16) << 16;
}

static inline uint32_t rt_odd(uint32_t x)
{
    return rt_even(x >> 8);
}

static inline uint32_t rt_low(uint32_t a, uint32_t b, uint32_t sum)
{
    return sum + (uint32_t)((int16_t)a * (int16_t)b);
}

static inline uint32_t rt_high(uint32_t a, uint32_t b, uint32_t sum)
{
    return rt_low(a >> 16, b >> 16, sum);
}

static inline uint32_t rt_both(uint32_t a, uint32_t b, uint32_t sum)
{
    return rt_high(a, b, rt_low(a, b, sum));
}

#endif

/* acc[0..3] += x[0..n-1] times four rows of weights, `stride` bytes apart, for n divisible by 4 and above 0. */
static inline void rt_words4(const int8_t *x, const int8_t *w, int32_t stride, int32_t n, uint32_t *acc)
{
    const int8_t *w2 = w + 2 * stride;
    const int8_t *const end = x + n;
    uint32_t a0 = acc[0], a1 = acc[1], a2 = acc[2], a3 = acc[3];
#if defined(RT_TARGET_DSP) && !defined(RT_TARGET_LANES) && defined(__OPTIMIZE__)
    /* By hand: it takes 13 registers, and compilers move the loads together until some of them are on the stack. */
    uint32_t word, weights, even, odd;
    __asm__("1: ldr %[word], [%[x]], #4\n"
            "sxtb16 %[even], %[word]\n"
            "sxtb16 %[odd], %[word], ror #8\n"
            "ldr %[word], [%[w], %[stride]]\n"
            "sxtb16 %[weights], %[word]\n"
            "smlad %[a1], %[weights], %[even], %[a1]\n"
            "sxtb16 %[word], %[word], ror #8\n"
            "smlad %[a1], %[word], %[odd], %[a1]\n"
            "ldr %[word], [%[w]], #4\n"
            "sxtb16 %[weights], %[word]\n"
            "smlad %[a0], %[weights], %[even], %[a0]\n"
            "sxtb16 %[word], %[word], ror #8\n"
            "smlad %[a0], %[word], %[odd], %[a0]\n"
            "ldr %[word], [%[w2], %[stride]]\n"
            "sxtb16 %[weights], %[word]\n"
            "smlad %[a3], %[weights], %[even], %[a3]\n"
            "sxtb16 %[word], %[word], ror #8\n"
            "smlad %[a3], %[word], %[odd], %[a3]\n"
            "ldr %[word], [%[w2]], #4\n"
            "sxtb16 %[weights], %[word]\n"
            "smlad %[a2], %[weights], %[even], %[a2]\n"
            "sxtb16 %[word], %[word], ror #8\n"
            "smlad %[a2], %[word], %[odd], %[a2]\n"
            "cmp %[x], %[end]\n"
            "bne 1b\n"
            : [x] "+&r"(x), [w] "+&r"(w), [w2] "+&r"(w2), [a0] "+&r"(a0), [a1] "+&r"(a1), [a2] "+&r"(a2),
              [a3] "+&r"(a3), [word] "=&r"(word), [weights] "=&r"(weights), [even] "=&r"(even), [odd] "=&r"(odd)
            : [stride] "r"(stride), [end] "r"(end)
            : "cc", "memory");
#else
    for (; x != end; x += 4, w += 4, w2 += 4) {
        uint32_t word = rt_word(x);
        const uint32_t even = rt_even(word), odd = rt_odd(word);
        word = rt_word(w);
        a0 = rt_both(rt_odd(word), odd, rt_both(rt_even(word), even, a0));
        word = rt_word(w + stride);
        a1 = rt_both(rt_odd(word), odd, rt_both(rt_even(word), even, a1));
        word = rt_word(w2);
        a2 = rt_both(rt_odd(word), odd, rt_both(rt_even(word), even, a2));
        word = rt_word(w2 + stride);
        a3 = rt_both(rt_odd(word), odd, rt_both(rt_even(word), even, a3));
    }
#endif
    acc[0] = a0;
    acc[1] = a1;
    acc[2] = a2;
    acc[3] = a3;
}

#endif

#endif
