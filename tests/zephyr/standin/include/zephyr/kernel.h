/* Stand-in: see ../../README.md. Nothing of the kernel is here. */
#ifndef STANDIN_KERNEL_H
#define STANDIN_KERNEL_H
#include <stddef.h>
#include <stdint.h>
#endif
