#ifndef SCHEDULER_H
#define SCHEDULER_H
#include <stdint.h>
extern volatile uint32_t switches;
void start(void (*first)(void), void (*second)(void), uint32_t ticks); /* never returns; a slice is `ticks` of SysTick */
void yield(void);
void lock(void);
void unlock(void);
#endif
