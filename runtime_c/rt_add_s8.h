/* rt_add_s8.h - sum or difference of two tensors of different scales: exact, rounded once, half to even.
 *
 * p = a * Ma + b * Mb + C is the code with `shift` fraction bits, zero points and rounding included. `parity` moves the
 * boundaries of odd values (ties to even). All 65,536 pairs are checked at build time (codegen/numerics/pairs.py). */
#ifndef RT_ADD_S8_H
#define RT_ADD_S8_H

#include "rt_target.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A pair whose code the form misses: pair = (a + 128) * 256 + (b + 128). */
typedef struct {
    uint16_t pair;
    int8_t code;
} rt_add_exception_t;

/* The listed code of the pair (a, b), or the given one. */
static inline int32_t rt_listed_code(int32_t a, int32_t b, int32_t code, const rt_add_exception_t *list, int32_t n)
{
    int32_t pair = (a + 128) * 256 + b + 128, first = 0, count = n;
    while (count > 0) { /* binary search */
        int32_t half = count / 2;
        if (list[first + half].pair < pair) {
            first += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return first < n && list[first].pair == pair ? list[first].code : code;
}

/* The wide form (wide = 1) adds 22 bits to each number: value = high * 2^22 + low, 0 <= low < 2^22. */
typedef struct {
    int32_t a_high, b_high, constant_high;
    int32_t a_low, b_low, constant_low;
    int32_t parity; /* in units of the last bit: of the high parts, or of the low ones in the wide form */
    const rt_add_exception_t *exceptions; /* ascending by pair */
    int32_t exception_count;
    int8_t lo, hi; /* bounds of the code: int8 range, Relu and Clip */
    uint8_t shift; /* fraction bits of the high parts */
    uint8_t flip;  /* 1 where the zero point of y is odd */
    uint8_t wide;
} rt_add_t;

/* y[i] = a[i] + b[i] (or the difference, as the multipliers say) for n codes; y may be a or b. */
void rt_add_s8(const int8_t *a, const int8_t *b, int32_t n, const rt_add_t *p, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
