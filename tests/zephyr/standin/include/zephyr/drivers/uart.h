/* Stand-in: see ../../../README.md. */
#ifndef STANDIN_UART_H
#define STANDIN_UART_H
#include <zephyr/device.h>
int uart_poll_in(const struct device *dev, unsigned char *c); /* -1: nothing has come */
void uart_poll_out(const struct device *dev, unsigned char c);
#endif
