#include "rt_lut_s8.h"

void rt_lut_s8(const int8_t *x, int32_t n, const int8_t table[256], int8_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = table[x[i] + 128];
}
