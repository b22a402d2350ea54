/* QEMU plugin: how often each instruction of a range of addresses is executed, and how often each branch is taken.
 *
 * Arguments: lo=ADDRESS,hi=ADDRESS (the range, hexadecimal) and out=FILE.  At the end FILE holds one line for each instruction that ran:
 * address, executions, and how often control went elsewhere than to the next address afterwards.
 * The declarations are those of the plugin interface, version 1, so that no header of QEMU is needed.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, void (*cb)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, void (*cb)(unsigned, void *), int flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int op, void *pointer, uint64_t immediate);
void qemu_plugin_register_atexit_cb(plugin_id id, void (*cb)(plugin_id, void *), void *data);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

/* A translated block: where it starts, its last instruction, and what follows that in memory. */
struct block {
  uint64_t start;
  uint64_t last;
  uint64_t next;
};

static uint64_t low, high;
static const char *out_name;
static uint64_t *executed, *taken; /* by half-word from `low` */
static const struct block *previous;

static int inside(uint64_t address) {
  return address >= low && address < high;
}

static void on_block(unsigned cpu, void *data) {
  const struct block *block = data;
  (void)cpu;
  if (previous != NULL && block->start != previous->next && inside(previous->last)) {
    taken[(previous->last - low) / 2]++;
  }
  previous = block;
}

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb) {
  size_t count = qemu_plugin_tb_n_insns(tb);
  struct block *block = malloc(sizeof *block); /* as long as the emulator: translations keep the pointer */
  (void)id;
  if (block == NULL || count == 0) {
    abort();
  }
  block->start = qemu_plugin_tb_vaddr(tb);
  for (size_t i = 0; i < count; i++) {
    struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
    uint64_t address = qemu_plugin_insn_vaddr(insn);
    block->last = address;
    block->next = address + qemu_plugin_insn_size(insn);
    if (inside(address)) {
      qemu_plugin_register_vcpu_insn_exec_inline(insn, 0, &executed[(address - low) / 2], 1);
    }
  }
  qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, 0, block);
}

static void on_exit(plugin_id id, void *data) {
  FILE *out = fopen(out_name, "w");
  (void)id;
  (void)data;
  if (out == NULL) {
    return; /* the reader notices that there is no file */
  }
  for (uint64_t i = 0; i < (high - low) / 2; i++) {
    if (executed[i] != 0) {
      fprintf(out, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n", low + 2 * i, executed[i], taken[i]);
    }
  }
  fclose(out);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; i++) {
    if (strncmp(argv[i], "lo=", 3) == 0) {
      low = strtoull(argv[i] + 3, NULL, 16);
    } else if (strncmp(argv[i], "hi=", 3) == 0) {
      high = strtoull(argv[i] + 3, NULL, 16);
    } else if (strncmp(argv[i], "out=", 4) == 0) {
      size_t length = strlen(argv[i] + 4) + 1;
      char *copy = malloc(length); /* the arguments go away */
      out_name = copy == NULL ? NULL : memcpy(copy, argv[i] + 4, length);
    }
  }
  if (out_name == NULL || high <= low) {
    return 1;
  }
  executed = calloc((high - low) / 2 + 1, sizeof *executed);
  taken = calloc((high - low) / 2 + 1, sizeof *taken);
  if (executed == NULL || taken == NULL) {
    return 1;
  }
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  qemu_plugin_register_atexit_cb(id, on_exit, NULL);
  return 0;
}
