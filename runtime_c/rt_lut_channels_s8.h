/* rt_lut_channels_s8.h - one table per group of channels: a constant operand, a slope, an offset per channel. */
#ifndef RT_LUT_CHANNELS_S8_H
#define RT_LUT_CHANNELS_S8_H

#include "rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] = tables[table_of[i % period]][x[i] + 128] for n codes, n a multiple of period; y may be x. */
void rt_lut_channels_s8(const int8_t *x, int32_t n, int32_t period, const uint8_t *table_of, const int8_t *tables,
                        int8_t *y);

#ifdef __cplusplus
}
#endif

#endif
