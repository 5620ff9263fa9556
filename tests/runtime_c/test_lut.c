/* Tables of 256 codes. */
#include "check.h"
#include "rt_lut_s8.h"

int main(void)
{
    int8_t negated[256];
    for (int i = -128; i < 128; ++i)
        negated[i + 128] = (int8_t)(i == -128 ? 127 : -i);
    const int8_t x[5] = {-128, -1, 0, 1, 127};
    int8_t y[5] = {0};
    rt_lut_s8(x, 5, negated, y);
    CHECK_CODES(y, 127, 1, 0, -1, -127);
    rt_lut_s8(y, 5, negated, y); /* in place */
    CHECK_CODES(y, -127, -1, 0, 1, 127);
    rt_lut_s8(x, 0, negated, y);
    CHECK(y[0], -127);
    return check_result();
}
