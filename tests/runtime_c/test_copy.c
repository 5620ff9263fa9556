/* Strided copies inside a frame. */
#include "check.h"
#include "rt_copy_s8.h"

static void transposes(void)
{
    const int8_t x[6] = {1, 2, 3, 4, 5, 6}; /* 2 rows of 3 */
    const rt_copy_t c = {.sizes = {1, 1, 3, 2}, .from_strides = {0, 0, 1, 3}, .to_strides = {0, 0, 2, 1}};
    int8_t y[6] = {0};
    rt_copy_s8(x, &c, y);
    CHECK_CODES(y, 1, 4, 2, 5, 3, 6);
}

static void copies_lines(void)
{
    const int8_t x[8] = {1, 2, 3, 4, 5, 6, 7, 8}; /* columns 1 and 2 of 2 rows of 4 */
    const rt_copy_t c = {.sizes = {1, 1, 2, 2}, .from_strides = {0, 0, 4, 1}, .to_strides = {0, 0, 2, 1}};
    int8_t y[4] = {0};
    rt_copy_s8(x + 1, &c, y);
    CHECK_CODES(y, 2, 3, 6, 7);
}

static void repeats(void)
{
    const int8_t x[2] = {7, 8}; /* stride 0 reads the same again */
    const rt_copy_t c = {.sizes = {1, 2, 2, 1}, .from_strides = {0, 1, 0, 0}, .to_strides = {0, 2, 1, 1}};
    int8_t y[4] = {0};
    rt_copy_s8(x, &c, y);
    CHECK_CODES(y, 7, 7, 8, 8);
}

int main(void)
{
    transposes();
    copies_lines();
    repeats();
    return check_result();
}
