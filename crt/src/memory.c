/* SPDX-License-Identifier: Apache-2.0 */
/* memcpy, memset, memmove: the only library functions that generated code calls, so that their size, stack and cost are ours. */
#include <stddef.h>
#include <stdint.h>

typedef uint32_t __attribute__((may_alias)) word;

void *memcpy(void *restrict to, const void *restrict from, size_t n);
void *memset(void *to, int value, size_t n);
void *memmove(void *to, const void *from, size_t n);

/* Copies upwards; right for overlapping regions when `to` is below `from`. */
static void copy_up(uint8_t *to, const uint8_t *from, size_t n) {
#if defined(__ARM_FEATURE_MVE)
  __asm__ volatile(
      "wlstp.8 lr, %[n], 2f\n"
      "1:\n\t"
      "vldrb.8 q0, [%[from]], #16\n\t"
      "vstrb.8 q0, [%[to]], #16\n\t"
      "letp lr, 1b\n"
      "2:"
      : [to] "+r"(to), [from] "+r"(from)
      : [n] "r"(n)
      : "lr", "q0", "memory");
#else
  if (n >= 8u) {
    while (((uintptr_t)to & 3u) != 0u) {
      *to++ = *from++;
      n--;
    }
    if (((uintptr_t)from & 3u) == 0u) {
#if defined(__arm__)
      for (; n >= 16u; n -= 16u) {
        __asm__ volatile("ldmia %0!, {r3, r4, r5, r6}\n\tstmia %1!, {r3, r4, r5, r6}"
                         : "+l"(from), "+l"(to)
                         :
                         : "r3", "r4", "r5", "r6", "memory");
      }
#endif
      for (; n >= 4u; n -= 4u, to += 4, from += 4) *(word *)(void *)to = *(const word *)(const void *)from;
    }
#if defined(__ARM_FEATURE_UNALIGNED)
    for (; n >= 4u; n -= 4u, to += 4, from += 4) {
      uint32_t w;
      __asm__ volatile("ldr %0, [%1]" : "=r"(w) : "r"(from) : "memory");
      *(word *)(void *)to = w;
    }
#endif
  }
  while (n-- != 0u) *to++ = *from++;
#endif
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  copy_up(to, from, n);
  return to;
}

void *memmove(void *to, const void *from, size_t n) {
  uint8_t *t = to;
  const uint8_t *f = from;
  if ((uintptr_t)t - (uintptr_t)f >= n) {
    copy_up(t, f, n);
    return to;
  }
  t += n;
  f += n;
  if ((((uintptr_t)t ^ (uintptr_t)f) & 3u) == 0u) {
    for (; n != 0u && ((uintptr_t)t & 3u) != 0u; n--) *--t = *--f;
    for (; n >= 4u; n -= 4u) {
      t -= 4;
      f -= 4;
      *(word *)(void *)t = *(const word *)(const void *)f;
    }
  }
  while (n-- != 0u) *--t = *--f;
  return to;
}

void *memset(void *to, int value, size_t n) {
  uint8_t *t = to;
  const uint8_t byte = (uint8_t)value;
#if defined(__ARM_FEATURE_MVE)
  __asm__ volatile(
      "vdup.8 q0, %[byte]\n\t"
      "wlstp.8 lr, %[n], 2f\n"
      "1:\n\t"
      "vstrb.8 q0, [%[to]], #16\n\t"
      "letp lr, 1b\n"
      "2:"
      : [to] "+r"(t)
      : [n] "r"(n), [byte] "r"(byte)
      : "lr", "q0", "memory");
#else
  if (n >= 8u) {
    const uint32_t w = byte * 0x01010101u;
    for (; ((uintptr_t)t & 3u) != 0u; n--) *t++ = byte;
    for (; n >= 16u; n -= 16u, t += 16) {
      word *p = (word *)(void *)t;
      p[0] = w;
      p[1] = w;
      p[2] = w;
      p[3] = w;
    }
    for (; n >= 4u; n -= 4u, t += 4) *(word *)(void *)t = w;
  }
  while (n-- != 0u) *t++ = byte;
#endif
  return to;
}
