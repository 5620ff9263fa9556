/* rt_target.h - the four integer operations that processors do in one instruction, each with a plain C twin.
 *
 * Chosen by the compiler's own macros: Cortex-M4/M7/M33 (DSP extension), Cortex-M0/M0+/M23 (no 64-bit product: halves of
 * 16 bits, no helper function), anything else (64-bit product). RT_TARGET_PORTABLE and RT_TARGET_HALVES select the two C
 * twins by hand; all three give the same result for every argument. */
#ifndef RT_TARGET_H
#define RT_TARGET_H

#include "rt.h"

#if !defined(RT_TARGET_PORTABLE) && !defined(RT_TARGET_HALVES)
#if defined(__ARM_FEATURE_DSP) && defined(__thumb2__) && defined(__GNUC__)
#define RT_TARGET_DSP
#elif defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
#define RT_TARGET_HALVES
#else
#define RT_TARGET_PORTABLE
#endif
#endif

/* A function that is not expanded where it is called: of several, only the one that runs takes stack. */
#if defined(__GNUC__)
#define RT_APART __attribute__((noinline))
#else
#define RT_APART
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* a * 2^k in 32 bits; the caller knows that it fits. */
static inline int32_t rt_shift_left(int32_t a, uint32_t k)
{
    return (int32_t)((uint32_t)a << k);
}

/* sum + floor(a * m / 2^32) for m >= 0; the caller knows that the sum fits. */
static inline int32_t rt_add_mulhi(int32_t sum, int32_t a, int32_t m)
{
#if defined(RT_TARGET_DSP)
    int32_t result;
    __asm__("smmla %0, %1, %2, %3" : "=r"(result) : "r"(a), "r"(m), "r"(sum));
    return result;
#elif defined(RT_TARGET_HALVES)
    int32_t a_hi = a >> 16, m_hi = m >> 16;
    uint32_t a_lo = (uint32_t)a & 0xFFFFu, m_lo = (uint32_t)m & 0xFFFFu;
    int32_t middle = a_hi * (int32_t)m_lo + (int32_t)((a_lo * m_lo) >> 16); /* within -2^31 .. 2^31 - 1 */
    int32_t rest = (int32_t)(a_lo * (uint32_t)m_hi) + (int32_t)((uint32_t)middle & 0xFFFFu); /* below 2^31 */
    return sum + a_hi * m_hi + (middle >> 16) + (rest >> 16);
#else
    return sum + (int32_t)(((int64_t)a * m) >> 32);
#endif
}

/* sum - (bit / 2^s) * (m >> (32 - s)) where bit is 0 or 2^s, 1 <= s <= 31, and 2^(32 - s) divides m >= 0. */
static inline int32_t rt_sub_where(int32_t sum, int32_t bit, int32_t m, uint32_t s)
{
#if defined(RT_TARGET_DSP)
    int32_t result;
    (void)s; /* sum - bit * m / 2^32 is the same number */
    __asm__("smmls %0, %1, %2, %3" : "=r"(result) : "r"(bit), "r"(m), "r"(sum));
    return result;
#else
    return bit ? sum - (m >> (32 - s)) : sum;
#endif
}

/* The nearest int8 code. */
static inline int8_t rt_saturate_s8(int32_t code)
{
#if defined(RT_TARGET_DSP)
    int32_t result;
    __asm__("ssat %0, #8, %1" : "=r"(result) : "r"(code));
    return (int8_t)result;
#else
    return (int8_t)(code < -128 ? -128 : code > 127 ? 127 : code);
#endif
}

/* The code limited to lo..hi. */
static inline int8_t rt_limit_s8(int32_t code, int32_t lo, int32_t hi)
{
    return (int8_t)(code < lo ? lo : code > hi ? hi : code);
}

#ifdef __cplusplus
}
#endif

#endif
