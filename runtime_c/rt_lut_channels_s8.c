#include "rt_lut_channels_s8.h"

void rt_lut_channels_s8(const int8_t *x, int32_t n, int32_t period, const uint8_t *table_of, const int8_t *tables,
                        int8_t *y)
{
    for (int32_t start = 0; start < n; start += period)
        for (int32_t i = 0; i < period; ++i)
            y[start + i] = tables[(int32_t)table_of[i] * 256 + x[start + i] + 128];
}
