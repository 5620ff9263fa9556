/* Frames by index: history, fresh frames and padding; the ring; small integer helpers. */
#include "check.h"
#include "rt_stream.h"

/* Frames 2, 3, 4 in a ring of 3 whose newest frame lies in slot 0, then 5 and 6 fresh. A frame's bytes: 10 * index, +1. */
static const int8_t ring[3][2] = {{40, 41}, {20, 21}, {30, 31}};
static const int8_t fresh[2][2] = {{50, 51}, {60, 61}};
static const int8_t padding[2] = {-7, -8};

static rt_stream_t stream(void)
{
    rt_stream_t s = {.history = ring[0],
                     .fresh = fresh[0],
                     .pad = padding,
                     .first = 5,
                     .length = INT32_MAX,
                     .bytes = 2,
                     .slots = 3,
                     .head = 1};
    return s;
}

static void frames_come_from_history_and_fresh(void)
{
    rt_stream_t s = stream();
    for (int32_t j = 2; j <= 6; ++j) {
        CHECK(rt_frame(&s, j)[0], 10 * j);
        CHECK(rt_frame(&s, j)[1], 10 * j + 1);
    }
}

static void outside_the_sequence_is_padding(void)
{
    rt_stream_t s = stream();
    CHECK(rt_frame(&s, -1) == padding, 1);
    s.length = 6; /* the last frame is 5 */
    CHECK(rt_frame(&s, 5)[0], 50);
    CHECK(rt_frame(&s, 6) == padding, 1);
    s.length = 4; /* the end lies in the history */
    CHECK(rt_frame(&s, 3)[0], 30);
    CHECK(rt_frame(&s, 4) == padding, 1);
}

static void windows_step_by_the_dilation(void)
{
    rt_stream_t s = stream();
    const int8_t *rows[3];
    rt_frames(&s, 2, 3, 2, rows);
    CHECK(rows[0][0], 20);
    CHECK(rows[1][0], 40);
    CHECK(rows[2][0], 60);
    rt_frames(&s, 4, 3, 1, rows);
    CHECK(rows[0][0], 40);
    CHECK(rows[1][0], 50);
    CHECK(rows[2][0], 60);
}

static void the_ring_keeps_the_newest(void)
{
    int8_t history[3] = {0, 0, 0};
    const int8_t one[1] = {1}, two[2] = {2, 3}, many[5] = {4, 5, 6, 7, 8};
    uint16_t head = rt_commit(history, 3, 0, one, 1, 1);
    CHECK(head, 1);
    head = rt_commit(history, 3, head, two, 2, 1);
    CHECK(head, 0);
    CHECK_CODES(history, 1, 2, 3);
    head = rt_commit(history, 3, head, one, 0, 1); /* nothing new */
    CHECK(head, 0);
    head = rt_commit(history, 3, head, many, 1, 1);
    CHECK_CODES(history, 4, 2, 3);
    head = rt_commit(history, 3, head, many, 5, 1); /* 4 and 5 do not survive */
    CHECK_CODES(history, 8, 6, 7);
    CHECK(head, 1);
}

static void a_committed_frame_is_found_again(void)
{
    int8_t history[2][2] = {{0, 0}, {0, 0}};
    rt_stream_t s = {.history = history[0], .fresh = fresh[0], .pad = padding, .first = 0, .length = INT32_MAX};
    s.bytes = 2;
    s.slots = 2;
    s.head = rt_commit(history[0], 2, 0, fresh[0], 2, 2);
    s.first = 2;
    CHECK(rt_frame(&s, 0)[0], 50);
    CHECK(rt_frame(&s, 1)[1], 61);
}

/* Frames 0 .. 3 at 4, nowhere, 0 and 6 of a block; 3 is still fresh. */
static void rows_lie_where_the_table_says(void)
{
    static const uint16_t at[4] = {4, RT_NOWHERE, 0, 6};
    int8_t block[8] = {0, 0, 9, 9, 0, 0, 0, 0};
    rt_stream_t s = {
        .history = block, .fresh = fresh[1], .pad = padding, .first = 3, .length = 4, .bytes = 2, .at = at};
    rt_keep_rows(block, at, ring[0], 0, 3, 2);
    CHECK_CODES(block, 30, 31, 9, 9, 40, 41, 0, 0);
    CHECK(rt_frame(&s, 0)[1], 41);
    CHECK(rt_frame(&s, 2)[0], 30);
    CHECK(rt_frame(&s, 3)[0], 60);
    CHECK(rt_frame(&s, 4)[0], -7);
}

static void nothing_is_copied_from_null(void)
{
    int8_t to[2] = {1, 2};
    rt_copy_bytes(to, NULL, 0);
    rt_copy_bytes(NULL, to, 0);
    CHECK_CODES(to, 1, 2);
    rt_copy_bytes(to, fresh[0], 2);
    CHECK_CODES(to, 50, 51);
}

static void division_rounds_down(void)
{
    CHECK(rt_floor_div(7, 2), 3);
    CHECK(rt_floor_div(-7, 2), -4);
    CHECK(rt_floor_div(-8, 2), -4);
    CHECK(rt_floor_div(-1, 5), -1);
    CHECK(rt_floor_div(0, 5), 0);
    CHECK(rt_floor_div(4, 5), 0);
    CHECK(rt_floor_div(INT32_MAX, 1), INT32_MAX);
    CHECK(rt_floor_div(INT32_MIN, 1), INT32_MIN);
    CHECK(rt_floor_div(INT32_MIN, INT32_MAX), -2);
}

static void small_helpers(void)
{
    CHECK(rt_min(3, 4), 3);
    CHECK(rt_min(4, -4), -4);
    CHECK(rt_clip(-1, 5), 0);
    CHECK(rt_clip(0, 5), 0);
    CHECK(rt_clip(4, 5), 4);
    CHECK(rt_clip(6, 5), 5);
    int8_t codes[4] = {-128, -1, 0, 127};
    rt_flip_s8(codes, 4, codes);
    CHECK_CODES(codes, 0, 127, -128, -1);
}

int main(void)
{
    frames_come_from_history_and_fresh();
    outside_the_sequence_is_padding();
    windows_step_by_the_dilation();
    the_ring_keeps_the_newest();
    a_committed_frame_is_found_again();
    rows_lie_where_the_table_says();
    nothing_is_copied_from_null();
    division_rounds_down();
    small_helpers();
    return check_result();
}
