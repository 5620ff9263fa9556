#include "rt_reduce_s8.h"

void rt_sum_s8(const int8_t *x, const rt_block_t *b, int32_t *acc)
{
    for (int32_t o = 0; o < b->outer; ++o, acc += b->inner)
        for (int32_t k = 0; k < b->n; ++k)
            for (int32_t i = 0; i < b->inner; ++i)
                acc[i] += *x++;
}

void rt_unsum_s8(const int8_t *x, const rt_block_t *b, int32_t *acc)
{
    for (int32_t o = 0; o < b->outer; ++o, acc += b->inner)
        for (int32_t k = 0; k < b->n; ++k)
            for (int32_t i = 0; i < b->inner; ++i)
                acc[i] -= *x++;
}

void rt_best_s8(const int8_t *x, const rt_block_t *b, int32_t flip, uint8_t *best)
{
    for (int32_t o = 0; o < b->outer; ++o, best += b->inner)
        for (int32_t k = 0; k < b->n; ++k)
            for (int32_t i = 0; i < b->inner; ++i) {
                const uint8_t code = (uint8_t)((*x++ ^ flip) + 128);
                if (code > best[i])
                    best[i] = code;
            }
}

void rt_best_codes_s8(const uint8_t *best, int32_t n, int32_t flip, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i)
        y[i] = (int8_t)((best[i] - 128) ^ flip);
}

void rt_mean_codes_s8(const int32_t *acc, int32_t n, int32_t offset, const rt_requant_t *q, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i) {
        RT_TRACE_PLACE(&y[i]);
        y[i] = rt_requantize_s8(acc[i] - offset, q, 0);
    }
}

void rt_average_codes_s8(const int32_t *acc, int32_t n, int32_t offset, const rt_linear_t *p, int8_t *y)
{
    for (int32_t i = 0; i < n; ++i) {
        RT_TRACE_PLACE(&y[i]);
        y[i] = rt_linear_s8(acc[i] - offset, p);
    }
}

void rt_dense_accumulate_s8(const int8_t *x, const int8_t *weights, int32_t outputs, int32_t n, int32_t *acc)
{
    for (int32_t o = 0; o < outputs; ++o) {
        int32_t sum = 0;
        for (int32_t k = 0; k < n; ++k)
            sum += x[k] * *weights++;
        acc[o] += sum;
    }
}

void rt_dense_accumulate_s8_w16(const int8_t *x, const int16_t *weights, int32_t outputs, int32_t n, int32_t *acc)
{
    for (int32_t o = 0; o < outputs; ++o) {
        int32_t sum = 0;
        for (int32_t k = 0; k < n; ++k)
            sum += x[k] * *weights++;
        acc[o] += sum;
    }
}

void rt_dense_codes_s8(const int32_t *acc, const int32_t *bias, int32_t outputs, const rt_requant_t *q, int8_t *y)
{
    for (int32_t o = 0; o < outputs; ++o) {
        RT_TRACE_PLACE(&y[o]);
        y[o] = rt_requantize_s8((int32_t)((uint32_t)bias[o] + (uint32_t)acc[o]), q, o); /* folded: modulo 2^32 */
    }
}
