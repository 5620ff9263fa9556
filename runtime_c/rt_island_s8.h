/* rt_island_s8.h - real functions of two codes as the sum or product of two tables; see codegen/numerics/islands.py. */
#ifndef RT_ISLAND_S8_H
#define RT_ISLAND_S8_H

#include "rt_add_s8.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const int32_t *a, *b; /* tables [256] by code + 128; every sum or product fits int32 */
    int32_t rounding, shift;
    int32_t parity, flip;                 /* ties to even: t loses parity where bit `shift` of it differs from flip */
    const rt_add_exception_t *exceptions; /* ascending by pair */
    int32_t exception_count;
    int8_t lo, hi;
} rt_island_t;

/* y[i] for n codes, n a multiple of period; element i uses islands[island_of[i % period]]. product: 1 multiplies the two
 * entries, 0 adds them. y may be a or b. */
void rt_island_s8(const int8_t *a, const int8_t *b, int32_t n, int32_t period, const uint8_t *island_of,
                  const rt_island_t *islands, int32_t product, int8_t *y);
/* y[i] = max(a[i], b[i]), or the minimum with flip -1. */
void rt_select_s8(const int8_t *a, const int8_t *b, int32_t n, int32_t flip, int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
