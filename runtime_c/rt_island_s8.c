#include "rt_island_s8.h"

static int8_t rt_island(int32_t a, int32_t b, const rt_island_t *p, int32_t product)
{
    const int32_t left = p->a[a + 128], right = p->b[b + 128];
    int32_t total = (product ? left * right : left + right) + p->rounding;
    if (((total >> p->shift) ^ p->flip) & 1)
        total -= p->parity;
    return rt_limit_s8(rt_listed_code(a, b, total >> p->shift, p->exceptions, p->exception_count), p->lo, p->hi);
}

void rt_island_s8(const int8_t *a, const int8_t *b, int32_t n, int32_t period, const uint8_t *island_of,
                  const rt_island_t *islands, int32_t product, int8_t *y)
{
    for (int32_t start = 0; start < n; start += period)
        for (int32_t i = 0; i < period; ++i)
            y[start + i] = rt_island(a[start + i], b[start + i], &islands[island_of[i]], product);
}

void rt_select_s8(const int8_t *a, const int8_t *b, int32_t n, int32_t flip, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = (a[i] ^ flip) > (b[i] ^ flip) ? a[i] : b[i];
}
