/* Cortex-M start-up, semihosting and SysTick as an instruction clock (QEMU -icount). */
#include "board.h"

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define ICSR (*(volatile uint32_t *)0xE000ED04u)
#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define ICSR_PENDSTSET (1u << 26)
#define TICKS 0x1000000u /* one round of SysTick */

extern uint32_t board_stack_top[], board_bss_start[], board_bss_end[];

static volatile uint32_t rounds;

static void semihost(int operation, const void *argument)
{
    register int r0 __asm("r0") = operation;
    register const void *r1 __asm("r1") = argument;
    __asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void __attribute__((noreturn)) stop(int status)
{
    const uint32_t block[2] = {0x20026u, (uint32_t)status}; /* ADP_Stopped_ApplicationExit */
    for (;;)
        semihost(0x20, block); /* SYS_EXIT_EXTENDED */
}

void board_write(const char *text)
{
    semihost(0x04, text); /* SYS_WRITE0 */
}

static void fault(void)
{
    board_write("fault\n");
    stop(99);
}

static void tick_handler(void)
{
    ++rounds;
}

static void __attribute__((noreturn)) reset(void)
{
#ifdef __ARM_FP
    CPACR |= 0xFu << 20;
    __asm volatile("dsb\n isb" ::: "memory");
#endif
    for (uint32_t *p = board_bss_start; p < board_bss_end; ++p)
        *p = 0;
    stop(board_main());
}

typedef void (*handler_t)(void);
__attribute__((section(".vectors"), used)) static const handler_t vectors[16] = {
    (handler_t)board_stack_top, reset, fault, fault, fault, fault, fault, fault, 0, 0, 0, fault, fault, 0, fault,
    tick_handler};

void board_clock_start(void)
{
    SYST_CSR = 0;
    rounds = 0;
    SYST_RVR = TICKS - 1;
    SYST_CVR = 0;
    SYST_CSR = 7; /* processor clock, interrupt, enable */
    while (SYST_CVR == 0)
        ; /* loads at the next tick */
}

void board_clock_stop(void)
{
    SYST_CSR = 0;
}

uint64_t board_ticks(void)
{
    uint32_t before, now, pending;
    do {
        before = rounds;
        now = SYST_CVR;
        pending = ICSR & ICSR_PENDSTSET;
    } while (before != rounds);
    if (pending && now > TICKS / 2)
        ++before;
    return ((uint64_t)before << 24) + (TICKS - 1 - now);
}

__attribute__((naked, noinline)) void board_loop(uint32_t n)
{
    (void)n;
    __asm volatile(".syntax unified\n"
                   "1: subs r0, #1\n"
                   " nop\n"
                   " bne 1b\n"
                   " bx lr\n");
}
