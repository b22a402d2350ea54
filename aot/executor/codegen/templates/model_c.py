"""model.c.j2 as Python; written by scripts/c_templates.py."""
# ruff: noqa
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def render(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of the file; `v` are the values that the template names."""
    yield from (str(v['banner']), '\n#include "', str(v['name']), '.h"\n\n#include <stddef.h>\n\n#include "aot/hooks.h"\n#include "aot/status.h"\n#include "', str(v['name']), '_internal.h"\n',)
    if v['memcpy']:
        yield from ('\n/* As <string.h> has it, which a freestanding compiler need not have. */\nvoid *memmove(void *to, const void *from, size_t bytes);\n',)
    if ((v['state'] and v['state']['fills']) or (v['steps'] and v['steps']['counters'])):
        yield from ('\n/* As <string.h> has it. */\nvoid *memset(void *to, int value, size_t bytes);\n',)
    yield from ('\n',)
    if v['shared']:
        yield from ('#include "aot_workspace.h"\n\n/* void, as only the plan knows what lies at an offset and how it is aligned */\n#define AT(offset) ((void *)&aot_workspace[offset])\n',)
    elif v['workspace_bytes']:
        yield from ('extern uint8_t ', str(v['name']), '_workspace[', str(v['NAME']), '_WORKSPACE_SIZE];\nAOT_ALIGN(16) AOT_SECTION("', str(v['section']), '") uint8_t ', str(v['name']), '_workspace[', str(v['NAME']), '_WORKSPACE_SIZE];\n\n/* void, as only the plan knows what lies at an offset and how it is aligned */\n#define AT(offset) ((void *)&', str(v['name']), '_workspace[offset])\n',)
    for p in v['pools']:
        yield from ('\nextern uint8_t ', str(v['name']), '_pool_', str(p['name']), '[', str(v['NAME']), '_POOL_', str(p['name']), '_SIZE];\nAOT_ALIGN(16) AOT_SECTION(".bss.aot_pool_', str(p['name']), '") uint8_t ', str(v['name']), '_pool_', str(p['name']), '[', str(v['NAME']), '_POOL_', str(p['name']), '_SIZE];\n#define AT_', str(p['name']), '(offset) ((void *)&', str(v['name']), '_pool_', str(p['name']), '[offset])\n',)
    if v['steps']:
        yield from ('\n/* The step of the run that is under way, from 1 on; 0: there is none. */\nstatic uint32_t at;\n',)
        if v['feed']:
            yield from ('static int32_t next_row = INT32_MAX;\n',)
        if (v['feed'] or v['steps']['reads_in']):
            yield from ('static struct ', str(v['name']), '_inputs run_in;\n',)
        if v['steps']['keeps_out']:
            yield from ('static struct ', str(v['name']), '_outputs run_out;\n',)
        if v['steps']['counters']:
            yield from ('static uint32_t turns[', str(v['steps']['counters']), ']; /* of the loops that are given up some time */\n',)
        yield from ('\nstatic void leave(void) {\n  at = 0u;\n',)
        if v['feed']:
            yield from ('  next_row = INT32_MAX;\n',)
        if v['shared']:
            yield from ('  aot_workspace_release();\n',)
        yield from ('}\n',)
    if v['state']:
        yield from ('\n',)
        if (v['io'] == 'user'):
            yield from ('#define STATE(offset) ((void *)&state[offset])\n\nvoid ', str(v['name']), '_reset(void *memory) {\n  uint8_t *const state = memory;\n  if (state == NULL) {\n    return;\n  }\n',)
            if v['steps']:
                yield from ('  if (at != 0u && run_out.state == memory) {\n    leave();\n  }\n',)
        else:
            yield from ('extern uint8_t ', str(v['name']), '_state[', str(v['NAME']), '_STATE_SIZE];\nAOT_ALIGN(', str(v['state']['align']), ') AOT_SECTION("', str(v['state']['section']), '") uint8_t ', str(v['name']), '_state[', str(v['NAME']), '_STATE_SIZE];\n#define STATE(offset) ((void *)&', str(v['name']), '_state[offset])\n',)
            if (not v['state']['zero']):
                yield from ('\n/* 0 until the state has its initial values. */\nstatic uint8_t is_set;\n',)
            yield from ('\nvoid ', str(v['name']), '_reset(void) {\n',)
            if v['steps']:
                yield from ('  if (at != 0u) {\n    leave();\n  }\n',)
        for s in v['state']['steps']:
            if (s['times'] > 1):
                yield from ('  for (uint32_t i = 0; i < ', str(s['times']), 'u; ++i) {\n    memmove(STATE(', str(s['offset']), 'u + i * ', str(s['size']), 'u), ', str(s['array']), ', ', str(s['size']), 'u);\n  }\n',)
            elif s['array']:
                yield from ('  memmove(STATE(', str(s['offset']), '), ', str(s['array']), ', ', str(s['size']), 'u);\n',)
            else:
                yield from ('  memset(STATE(', str(s['offset']), '), ', str(s['fill']), ', ', str(s['size']), 'u);\n',)
        if ((v['io'] != 'user') and (not v['state']['zero'])):
            yield from ('  is_set = 1u;\n',)
        yield from ('}\n',)
    if (v['io'] == 'arena'):
        yield from ('\n',)
        for kind, tensors in [('input', ([] if v['feed'] else v['inputs']),), ('output', v['outputs'],)]:
            for t in tensors:
                yield from (str(t['ctype']), ' *', str(v['name']), '_', str(kind), '_', str(t['index']), '(void) {\n  return ', str(t['at']), ';\n}\n\n',)
        yield from ('static void copy(void *to, const void *from, size_t bytes) {\n  if (to != NULL && from != NULL && to != from) {\n    memmove(to, from, bytes);\n  }\n}\n',)
    yield from ('\n',)
    if (v['feed'] and v['steps']):
        if v['feed']:
            yield from ('/* One row: copied into its window, and whatever it makes possible is computed. Rows outside of the image are not read. */\nstatic void take(const ', str(v['feed']['ctype']), ' *row) {\n  ', str(v['feed']['text']), '\n  ++next_row;\n}\n\nint32_t ', str(v['name']), '_feed_begin(void) {\n  if (at != 0u) {\n    return AOT_ERROR_BUSY;\n  }\n',)
            if (v['state'] and (not v['state']['zero'])):
                yield from ('  if (is_set == 0u) {\n    ', str(v['name']), '_reset();\n  }\n',)
            yield from ('  next_row = ', str(v['feed']['first']), ';\n  while (next_row < 0) {\n    take(AT(0));\n  }\n  return AOT_OK;\n}\n\nstatic int32_t take_checked(const ', str(v['feed']['ctype']), ' *row) {\n  if (row == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
            if (v['feed']['align'] > 1):
                yield from ('  if (((uintptr_t)row & ', str((v['feed']['align'] - 1)), 'u) != 0u) {\n    return AOT_ERROR_ALIGN;\n  }\n',)
            yield from ('  if (next_row < 0 || next_row >= ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  take(row);\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_feed_row(const ', str(v['feed']['ctype']), ' *row) {\n  return at != 0u ? AOT_ERROR_BUSY : take_checked(row);\n}\n\nint32_t ', str(v['name']), '_run_begin(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n  if (at != 0u) {\n    return AOT_ERROR_BUSY;\n  }\n  if (in != NULL && in->', str(v['feed']['input']), ' != NULL) {\n    (void)', str(v['name']), '_feed_begin();\n  } else if (next_row != ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  run_in.', str(v['feed']['input']), ' = in != NULL ? in->', str(v['feed']['input']), ' : NULL;\n',)
        else:
            for line in v['steps']['begin']:
                yield from ('  ', str(line), '\n',)
            if (v['steps']['reads_in'] and (v['io'] == 'user')):
                yield from ('  run_in = *in;\n',)
            elif v['steps']['reads_in']:
                for t in v['inputs']:
                    yield from ('  run_in.', str(t['c_name']), ' = in != NULL ? in->', str(t['c_name']), ' : NULL;\n',)
        if (v['steps']['keeps_out'] and (v['io'] == 'user')):
            yield from ('  run_out = *out;\n',)
        elif v['steps']['keeps_out']:
            for t in v['outputs']:
                yield from ('  run_out.', str(t['c_name']), ' = out != NULL ? out->', str(t['c_name']), ' : NULL;\n',)
        if v['steps']['counters']:
            yield from ('  memset(turns, 0, sizeof turns);\n',)
        yield from ('  at = 1u;\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_run_step(void) {\n',)
        if v['steps']['reads_in']:
            yield from ('  const struct ', str(v['name']), '_inputs *const in = &run_in;\n',)
        if v['steps']['writes_out']:
            yield from ('  const struct ', str(v['name']), '_outputs *const out = &run_out;\n',)
        if (v['state'] and (v['io'] == 'user')):
            yield from ('  uint8_t *const state = run_out.state;\n',)
        if v['steps']['lets']:
            yield from ('  if (at == 0u) {\n    return AOT_ERROR_STATE;\n  }\n',)
            for line in v['steps']['lets']:
                yield from ('  ', str(line), '\n',)
        yield from ('  switch (at) {\n',)
        if v['feed']:
            yield from ('    case 1u: /* a row of the input, or one below it */\n      if (next_row < ', str(v['feed']['rows']), ') {\n        const int32_t status = take_checked(&run_in.', str(v['feed']['input']), '[next_row * ', str(v['feed']['elements']), ']);\n        if (status != AOT_OK) {\n          leave();\n          return status;\n        }\n      } else if (next_row < ', str(v['steps']['rows']), ') {\n        take(AT(0));\n      }\n      if (next_row == ', str(v['steps']['rows']), ') {\n        ', str(v['steps']['probe']), '\n        at = 2u;\n      }\n      break;\n',)
        for case in v['steps']['cases']:
            yield from ('    case ', str(case['number']), 'u:\n',)
            for line in case['lines']:
                yield from ('      ', str(line), '\n',)
            yield from ('      break;\n',)
        yield from ('    default:\n      return AOT_ERROR_STATE;\n  }\n  if (at != ', str(v['steps']['end']), 'u) {\n    return AOT_MORE;\n  }\n  leave();\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_run_until(uint32_t budget) {\n  static const uint32_t work[] = ', str('{'), str(v['steps']['work']), str('}'), ';\n  uint32_t left = budget;\n  int32_t status;\n  do {\n    left -= work[at] < left ? work[at] : left;\n    status = ', str(v['name']), '_run_step();\n  } while (status == AOT_MORE && work[at] <= left);\n  return status;\n}\n\nvoid ', str(v['name']), '_run_abort(void) {\n  if (at == 0u) {\n    return;\n  }\n',)
        if (v['state'] and (v['io'] == 'user')):
            yield from ('  ', str(v['name']), '_reset(run_out.state);\n',)
        elif v['state']:
            yield from ('  ', str(v['name']), '_reset();\n',)
        else:
            yield from ('  leave();\n',)
        yield from ('}\n',)
        if v['feed']:
            yield from ('\nint32_t ', str(v['name']), '_feed_end(const struct ', str(v['name']), '_outputs *out) {\n  const struct ', str(v['name']), '_inputs in = {NULL};\n  int32_t status = ', str(v['name']), '_run_begin(&in, out);\n  if (status == AOT_OK) {\n    do {\n      status = ', str(v['name']), '_run_step();\n    } while (status == AOT_MORE);\n  }\n  return status;\n}\n',)
        yield from ('\nint32_t ', str(v['name']), '_run(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n',)
        if v['feed']:
            yield from ('  int32_t status = in == NULL || in->', str(v['feed']['input']), ' == NULL ? AOT_ERROR_NULL : ', str(v['name']), '_run_begin(in, out);\n',)
        else:
            yield from ('  int32_t status = ', str(v['name']), '_run_begin(in, out);\n',)
        yield from ('  if (status == AOT_OK) {\n    do {\n      status = ', str(v['name']), '_run_step();\n    } while (status == AOT_MORE);\n  }\n  return status;\n}\n',)
    elif v['feed']:
        yield from ('static int32_t next_row = INT32_MAX;\n\n/* One row: copied into its window, and whatever it makes possible is computed. Rows outside of the image are not read. */\nstatic void take(const ', str(v['feed']['ctype']), ' *row) {\n  ', str(v['feed']['text']), '\n  ++next_row;\n}\n\nint32_t ', str(v['name']), '_feed_begin(void) {\n',)
        if (v['state'] and (not v['state']['zero'])):
            yield from ('  if (is_set == 0u) {\n    ', str(v['name']), '_reset();\n  }\n',)
        yield from ('  next_row = ', str(v['feed']['first']), ';\n  while (next_row < 0) {\n    take(AT(0));\n  }\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_feed_row(const ', str(v['feed']['ctype']), ' *row) {\n  if (row == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
        if (v['feed']['align'] > 1):
            yield from ('  if (((uintptr_t)row & ', str((v['feed']['align'] - 1)), 'u) != 0u) {\n    return AOT_ERROR_ALIGN;\n  }\n',)
        yield from ('  if (next_row < 0 || next_row >= ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  take(row);\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_feed_end(const struct ', str(v['name']), '_outputs *out) {\n  if (next_row != ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  while (next_row <= ', str(v['feed']['last']), ') {\n    take(AT(0));\n  }\n  next_row = INT32_MAX;\n', str(v['feed']['end']), '\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_run(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n  int32_t status;\n  if (in == NULL) {\n    return AOT_ERROR_NULL;\n  }\n  status = ', str(v['name']), '_feed_begin();\n  for (int32_t y = 0; y < ', str(v['feed']['rows']), ' && status == AOT_OK; ++y) {\n    status = in->', str(v['feed']['input']), ' == NULL ? AOT_ERROR_NULL : ', str(v['name']), '_feed_row(&in->', str(v['feed']['input']), '[y * ', str(v['feed']['elements']), ']);\n  }\n  return status == AOT_OK ? ', str(v['name']), '_feed_end(out) : status;\n}\n',)
    else:
        yield from ('int32_t ', str(v['name']), '_run', str(('_begin' if v['steps'] else '')), '(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n',)
        if (v['io'] == 'user'):
            yield from ('  if (in == NULL || out == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
        if ((not v['inputs']) and (v['io'] == 'arena')):
            yield from ('  (void)in;\n',)
        if ((not v['outputs']) and (v['io'] == 'arena')):
            yield from ('  (void)out;\n',)
        if v['steps']:
            yield from ('  if (at != 0u) {\n    return AOT_ERROR_BUSY;\n  }\n',)
        if (v['state'] and (v['io'] == 'user')):
            yield from ('  uint8_t *const state = out->state;\n',)
        if (v['shared'] and (v['io'] == 'arena')):
            yield from ('  if (!aot_workspace_claim()) {\n    return AOT_ERROR_BUSY;\n  }\n',)
        if (v['io'] == 'user'):
            for struct, tensors in [('in', v['inputs'],), ('out', v['outputs'],)]:
                for t in tensors:
                    yield from ('  if (', str(struct), '->', str(t['c_name']), ' == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
                    if (t['align'] > 1):
                        yield from ('  if (((uintptr_t)', str(struct), '->', str(t['c_name']), ' & ', str((t['align'] - 1)), 'u) != 0u) {\n    return AOT_ERROR_ALIGN;\n  }\n',)
            if v['state']:
                yield from ('  if (state == NULL) {\n    return AOT_ERROR_NULL;\n  }\n  if (((uintptr_t)state & ', str((v['state']['align'] - 1)), 'u) != 0u) {\n    return AOT_ERROR_ALIGN;\n  }\n',)
                if v['state']['turns']:
                    yield from ('  if (*(const uint32_t *)STATE(', str(v['state']['counter']), ') >= ', str(v['state']['turns']), 'u) {\n    return AOT_ERROR_STATE;\n  }\n',)
        if (v['shared'] and (v['io'] == 'user')):
            yield from ('  if (!aot_workspace_claim()) {\n    return AOT_ERROR_BUSY;\n  }\n',)
        if ((v['state'] and (v['io'] == 'arena')) and (not v['state']['zero'])):
            yield from ('  if (is_set == 0u) {\n    ', str(v['name']), '_reset();\n  }\n',)
        if v['steps']:
            if v['feed']:
                yield from ('/* One row: copied into its window, and whatever it makes possible is computed. Rows outside of the image are not read. */\nstatic void take(const ', str(v['feed']['ctype']), ' *row) {\n  ', str(v['feed']['text']), '\n  ++next_row;\n}\n\nint32_t ', str(v['name']), '_feed_begin(void) {\n  if (at != 0u) {\n    return AOT_ERROR_BUSY;\n  }\n',)
                if (v['state'] and (not v['state']['zero'])):
                    yield from ('  if (is_set == 0u) {\n    ', str(v['name']), '_reset();\n  }\n',)
                yield from ('  next_row = ', str(v['feed']['first']), ';\n  while (next_row < 0) {\n    take(AT(0));\n  }\n  return AOT_OK;\n}\n\nstatic int32_t take_checked(const ', str(v['feed']['ctype']), ' *row) {\n  if (row == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
                if (v['feed']['align'] > 1):
                    yield from ('  if (((uintptr_t)row & ', str((v['feed']['align'] - 1)), 'u) != 0u) {\n    return AOT_ERROR_ALIGN;\n  }\n',)
                yield from ('  if (next_row < 0 || next_row >= ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  take(row);\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_feed_row(const ', str(v['feed']['ctype']), ' *row) {\n  return at != 0u ? AOT_ERROR_BUSY : take_checked(row);\n}\n\nint32_t ', str(v['name']), '_run_begin(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n  if (at != 0u) {\n    return AOT_ERROR_BUSY;\n  }\n  if (in != NULL && in->', str(v['feed']['input']), ' != NULL) {\n    (void)', str(v['name']), '_feed_begin();\n  } else if (next_row != ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  run_in.', str(v['feed']['input']), ' = in != NULL ? in->', str(v['feed']['input']), ' : NULL;\n',)
            else:
                for line in v['steps']['begin']:
                    yield from ('  ', str(line), '\n',)
                if (v['steps']['reads_in'] and (v['io'] == 'user')):
                    yield from ('  run_in = *in;\n',)
                elif v['steps']['reads_in']:
                    for t in v['inputs']:
                        yield from ('  run_in.', str(t['c_name']), ' = in != NULL ? in->', str(t['c_name']), ' : NULL;\n',)
            if (v['steps']['keeps_out'] and (v['io'] == 'user')):
                yield from ('  run_out = *out;\n',)
            elif v['steps']['keeps_out']:
                for t in v['outputs']:
                    yield from ('  run_out.', str(t['c_name']), ' = out != NULL ? out->', str(t['c_name']), ' : NULL;\n',)
            if v['steps']['counters']:
                yield from ('  memset(turns, 0, sizeof turns);\n',)
            yield from ('  at = 1u;\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_run_step(void) {\n',)
            if v['steps']['reads_in']:
                yield from ('  const struct ', str(v['name']), '_inputs *const in = &run_in;\n',)
            if v['steps']['writes_out']:
                yield from ('  const struct ', str(v['name']), '_outputs *const out = &run_out;\n',)
            if (v['state'] and (v['io'] == 'user')):
                yield from ('  uint8_t *const state = run_out.state;\n',)
            if v['steps']['lets']:
                yield from ('  if (at == 0u) {\n    return AOT_ERROR_STATE;\n  }\n',)
                for line in v['steps']['lets']:
                    yield from ('  ', str(line), '\n',)
            yield from ('  switch (at) {\n',)
            if v['feed']:
                yield from ('    case 1u: /* a row of the input, or one below it */\n      if (next_row < ', str(v['feed']['rows']), ') {\n        const int32_t status = take_checked(&run_in.', str(v['feed']['input']), '[next_row * ', str(v['feed']['elements']), ']);\n        if (status != AOT_OK) {\n          leave();\n          return status;\n        }\n      } else if (next_row < ', str(v['steps']['rows']), ') {\n        take(AT(0));\n      }\n      if (next_row == ', str(v['steps']['rows']), ') {\n        ', str(v['steps']['probe']), '\n        at = 2u;\n      }\n      break;\n',)
            for case in v['steps']['cases']:
                yield from ('    case ', str(case['number']), 'u:\n',)
                for line in case['lines']:
                    yield from ('      ', str(line), '\n',)
                yield from ('      break;\n',)
            yield from ('    default:\n      return AOT_ERROR_STATE;\n  }\n  if (at != ', str(v['steps']['end']), 'u) {\n    return AOT_MORE;\n  }\n  leave();\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_run_until(uint32_t budget) {\n  static const uint32_t work[] = ', str('{'), str(v['steps']['work']), str('}'), ';\n  uint32_t left = budget;\n  int32_t status;\n  do {\n    left -= work[at] < left ? work[at] : left;\n    status = ', str(v['name']), '_run_step();\n  } while (status == AOT_MORE && work[at] <= left);\n  return status;\n}\n\nvoid ', str(v['name']), '_run_abort(void) {\n  if (at == 0u) {\n    return;\n  }\n',)
            if (v['state'] and (v['io'] == 'user')):
                yield from ('  ', str(v['name']), '_reset(run_out.state);\n',)
            elif v['state']:
                yield from ('  ', str(v['name']), '_reset();\n',)
            else:
                yield from ('  leave();\n',)
            yield from ('}\n',)
            if v['feed']:
                yield from ('\nint32_t ', str(v['name']), '_feed_end(const struct ', str(v['name']), '_outputs *out) {\n  const struct ', str(v['name']), '_inputs in = {NULL};\n  int32_t status = ', str(v['name']), '_run_begin(&in, out);\n  if (status == AOT_OK) {\n    do {\n      status = ', str(v['name']), '_run_step();\n    } while (status == AOT_MORE);\n  }\n  return status;\n}\n',)
            yield from ('\nint32_t ', str(v['name']), '_run(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n',)
            if v['feed']:
                yield from ('  int32_t status = in == NULL || in->', str(v['feed']['input']), ' == NULL ? AOT_ERROR_NULL : ', str(v['name']), '_run_begin(in, out);\n',)
            else:
                yield from ('  int32_t status = ', str(v['name']), '_run_begin(in, out);\n',)
            yield from ('  if (status == AOT_OK) {\n    do {\n      status = ', str(v['name']), '_run_step();\n    } while (status == AOT_MORE);\n  }\n  return status;\n}\n',)
        else:
            yield from (str(v['body']), '\n',)
            if v['shared']:
                yield from ('  aot_workspace_release();\n',)
            yield from ('  return AOT_OK;\n}\n',)
    if (v['slide'] and v['slide']['push']):
        yield from ('\nint32_t ', str(v['name']), '_push(const ', str(v['inputs'][0]['ctype']), ' *rows) {\n  const struct ', str(v['name']), '_inputs in = {rows};\n  const struct ', str(v['name']), '_outputs out = {0};\n  return ', str(v['name']), '_run(&in, &out);\n}\n',)
