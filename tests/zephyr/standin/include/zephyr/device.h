/* Stand-in: see ../../README.md. One device, the console's UART. */
#ifndef STANDIN_DEVICE_H
#define STANDIN_DEVICE_H
#include <stdint.h>
struct device {
  uintptr_t base;
};
extern const struct device standin_console;
#define DT_CHOSEN(name) standin_##name
#define DEVICE_DT_GET(node) STANDIN_DEVICE(node)
#define STANDIN_DEVICE(node) STANDIN_DEVICE_##node
#define STANDIN_DEVICE_standin_zephyr_console (&standin_console)
#endif
