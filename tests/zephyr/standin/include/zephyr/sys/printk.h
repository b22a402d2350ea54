/* Stand-in: see ../../../README.md. */
#ifndef STANDIN_PRINTK_H
#define STANDIN_PRINTK_H
void printk(const char *format, ...) __attribute__((format(printf, 1, 2)));
#endif
