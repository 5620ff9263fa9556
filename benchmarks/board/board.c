#include "board.h"

void board_print(const char *label, uint64_t value)
{
    char text[20];
    int at = 17;

    board_write(label);
    text[18] = 0;
    text[at] = '\n';
    do {
        text[--at] = "0123456789abcdef"[value & 15u];
        value >>= 4;
    } while (value != 0);
    text[--at] = ' ';
    board_write(text + at);
}

void board_calibrate(void)
{
    uint64_t ticks;

    board_clock_start();
    BOARD_MEASURE(ticks, (void)0); /* the first use of a page is no different, but be sure */
    BOARD_MEASURE(ticks, (void)0);
    board_print("calibrate_0", ticks);
    BOARD_MEASURE(ticks, board_loop(1));
    board_print("calibrate_1", ticks);
    BOARD_MEASURE(ticks, board_loop(1000));
    board_print("calibrate_1000", ticks);
    BOARD_MEASURE(ticks, board_loop(1000000));
    board_print("calibrate_1000000", ticks);
    BOARD_MEASURE(ticks, board_loop(6000000)); /* longer than the 24-bit SysTick */
    board_print("calibrate_6000000", ticks);
}
