#ifndef HARNESS_H
#define HARNESS_H

#include "rt_requantize.h"

void many_exact(const int32_t *acc, const uint32_t *bits, int32_t n, int32_t *y);
void many_requantize(const int32_t *acc, int32_t n, const rt_requant_t *q, int32_t channel, int8_t *y);
void many_add_mulhi(const int32_t *sum, const int32_t *a, const int32_t *m, int32_t n, int32_t *y);
void many_linear(const int32_t *x, int32_t n, const rt_linear_t *p, int8_t *y);

#endif
