"""The templates of aot/template as Python; written by scripts/c_templates.py."""
# ruff: noqa
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def model_h(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of model.h.j2; `v` are the values that it names."""
    yield from ('/* SPDX-License-Identifier: 0BSD */\n/* ', str(v['name']), ': ', str(v['source']), ', compiled to C by aot ', str(v['version']), '. Do not edit.\n',)
    if v['sha256']:
        yield from ('   model       sha256 ', str(v['sha256']), '\n',)
    yield from ('   target      ', str(v['cpu']), '; rounds as ', str(v['oracle']), '\n   flash       ', str(v['constants']), ' bytes of constants, plus code (aot report)\n   workspace   ', str(v['workspace']), ' bytes (whole tensors ', str(v['liveness_bound']), '), ', str(("inputs and outputs are the caller's" if (v['io'] == 'user') else ('outputs included, the input comes row by row' if v['feed'] else 'inputs and outputs included'))), '\n',)
    if v['state']:
        yield from ('   state       ', str(v['state']['text']), ' bytes that stay from run to run (', str(v['state']['count']), ' tensor', str(('s' if (v['state']['count'] > 1) else '')), '), ', str(("the caller's" if (v['io'] == 'user') else ('back to the start with %s_reset' % v['name']))), '\n',)
    yield from ('   stack       not computed (aot compile --stack-bound)\n   heap        0 bytes\n   work        ', str(v['macs']), ' multiply-accumulates in ', str(v['layers']), ' layers\n',)
    for t in v['inputs']:
        yield from ('   input ', str(t['index']), '     ', str(t['label']), ': ', str(t['dtype']), '[', str(t['dims']), ']',)
        if t['scale_text']:
            yield from (', real = ', str(t['scale_text'][:(-1)]), ' * (q - ', str((('(%d)' % t['zero_point']) if (t['zero_point'] < 0) else t['zero_point'])), ')',)
        yield from ('\n',)
    for t in v['outputs']:
        yield from ('   output ', str(t['index']), '    ', str(t['label']), ': ', str(t['dtype']), '[', str(t['dims']), ']',)
        if t['scale_text']:
            yield from (', real = ', str(t['scale_text'][:(-1)]), ' * (q - ', str((('(%d)' % t['zero_point']) if (t['zero_point'] < 0) else t['zero_point'])), ')',)
        yield from ('\n',)
    yield from ('*/\n#ifndef ', str(v['NAME']), '_H\n#define ', str(v['NAME']), '_H\n\n',)
    if v['bools']:
        yield from ('#include <stdbool.h>\n',)
    yield from ('#include <stdint.h>\n\n#ifdef __cplusplus\nextern "C" {\n#endif\n\n#define ', str(v['NAME']), '_WORKSPACE_SIZE ', str(v['workspace_bytes']), 'u\n',)
    for p in v['pools']:
        yield from ('#define ', str(v['NAME']), '_POOL_', str(p['name']), '_SIZE ', str(p['used']), 'u\n',)
    if v['state']:
        yield from ('#define ', str(v['NAME']), '_STATE_SIZE ', str(v['state']['size']), 'u\n',)
        if (v['io'] == 'user'):
            yield from ('#define ', str(v['NAME']), '_STATE_ALIGN ', str(v['state']['align']), 'u /* bytes */\n',)
    if (v['slide'] and v['slide']['rows']):
        yield from ('#define ', str(v['NAME']), '_SLIDE_ROWS ', str(v['slide']['rows']), ' /* of the window */\n#define ', str(v['NAME']), '_SLIDE_HOP ', str(v['slide']['hop']), ' /* of them new in each run */\n#define ', str(v['NAME']), '_SLIDE_PUSHES ', str(v['slide']['pushes']), ' /* until the window holds none of the zeros that it begins with */\n',)
    elif v['slide']:
        yield from ('#define ', str(v['NAME']), '_SLIDE_HOP ', str(v['slide']['hop']), ' /* new rows of the input in each run */\n#define ', str(v['NAME']), '_SLIDE_PUSHES ', str(v['slide']['pushes']), ' /* until no window holds zeros that it begins with */\n',)
    yield from ('#define ', str(v['NAME']), '_INPUTS ', str(len(v['inputs'])), '\n#define ', str(v['NAME']), '_OUTPUTS ', str(len(v['outputs'])), '\n#define ', str(v['NAME']), '_LAYERS ', str(v['layers']), '\n',)
    if v['steps']:
        yield from ('#define ', str(v['NAME']), '_STEPS ', str(v['steps']['count']), ' /* that a run is made of', str((': one for each row, then the layers' if v['feed'] else '')), ' */\n#define ', str(v['NAME']), '_STEP_MOST ', str(v['steps']['most']), 'u /* instructions of the longest step, as estimated */\n',)
    for kind, tensors in [('INPUT', v['inputs'],), ('OUTPUT', v['outputs'],)]:
        for t in tensors:
            yield from ('\n#define ', str(v['NAME']), '_', str(kind), '_', str(t['index']), '_SIZE ', str(t['size']), 'u /* bytes */\n',)
            if (v['io'] == 'user'):
                yield from ('#define ', str(v['NAME']), '_', str(kind), '_', str(t['index']), '_ALIGN ', str(t['align']), 'u /* bytes */\n',)
            yield from ('#define ', str(v['NAME']), '_', str(kind), '_', str(t['index']), '_NDIM ', str(t['ndim']), '\n#define ', str(v['NAME']), '_', str(kind), '_', str(t['index']), '_SHAPE ', str('{'), str(t['dims']), str('}'), '\n',)
            if t['scale_text']:
                yield from ('#define ', str(v['NAME']), '_', str(kind), '_', str(t['index']), '_SCALE ', str(t['scale_text']), '\n#define ', str(v['NAME']), '_', str(kind), '_', str(t['index']), '_ZERO_POINT ', str((('(%d)' % t['zero_point']) if (t['zero_point'] < 0) else t['zero_point'])), '\n',)
    yield from ('\n',)
    if (v['io'] == 'user'):
        yield from ("/* Every field must point to the tensor's memory, aligned to the bytes that its ALIGN says: kernels may read whole words.\n   Inputs and outputs must not overlap. */\n",)
    elif v['feed']:
        yield from ('/* The input is not in the workspace: ', str(v['name']), "_run reads it from the caller's memory, or its rows are fed one by one:\n   ", str(v['name']), '_feed_begin, ', str(v['name']), '_feed_row for each row from the top, ', str(v['name']), '_feed_end for the results. A row may be overwritten\n   when feed_row has returned. Rows out of order give AOT_ERROR_STATE. Rows, and the input of ', str(v['name']), '_run, must be aligned to\n   ', str(v['NAME']), "_FEED_ROW_ALIGN bytes. A field of the outputs that is NULL stands for the tensor's slot in the workspace (below), NULL for the\n   outputs for all of them. */\n#define ", str(v['NAME']), '_FEED_ROWS ', str(v['feed']['rows']), '\n#define ', str(v['NAME']), '_FEED_ROW_SIZE ', str(v['feed']['size']), 'u /* bytes */\n#define ', str(v['NAME']), '_FEED_ROW_ALIGN ', str(v['feed']['align']), 'u /* bytes */\n',)
    else:
        yield from ("/* A field that is NULL stands for the tensor's slot in the workspace (below), and a struct that is NULL for all of its slots. */\n",)
    yield from ('struct ', str(v['name']), '_inputs {\n',)
    for t in v['inputs']:
        yield from ('  const ', str(t['ctype']), ' *', str(t['c_name']), ';\n',)
    if not v['inputs']:
        yield from ('  const void *none;\n',)
    yield from ('};\n\nstruct ', str(v['name']), '_outputs {\n',)
    for t in v['outputs']:
        yield from ('  ', str(t['ctype']), ' *', str(t['c_name']), ';\n',)
    if not v['outputs']:
        yield from ('  void *none;\n',)
    if (v['state'] and (v['io'] == 'user')):
        yield from ('  void *state; /* ', str(v['NAME']), '_STATE_SIZE bytes, prepared by ', str(v['name']), '_reset: one for each stream that the model follows */\n',)
    yield from ('};\n\n/* Runs the model once. Returns 0, or a negative aot_status (aot/status.h).',)
    if v['shared']:
        yield from (' A run while another model or thread\n   has the shared workspace returns AOT_ERROR_BUSY.',)
    else:
        yield from (' Not reentrant: one run at a time.',)
    yield from (' */\n',)
    if v['max_iterations']:
        yield from ('/* A loop whose iterations depend on data may run ', str(v['max_iterations']), ' times; then a run gives up with AOT_ERROR_ITERATIONS, and\n   its outputs mean nothing', str((', and the state is back at the start' if v['state'] else '')), ' (aot compile --max-iterations). */\n',)
    yield from ('int32_t ', str(v['name']), '_run(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out);\n',)
    if v['steps']:
        yield from ('\n/* The same run in steps, for a program that has other things to do: ', str(v['name']), '_run_begin, then ', str(v['name']), '_run_step or\n   ', str(v['name']), '_run_until until they do not return AOT_MORE any more. The results are those of ', str(v['name']), '_run, however a run is split.\n   A step is one layer', str((', or one row of the input' if v['feed'] else '')), '; ', str(v['name']), '_run_until runs as many as make up `budget` estimated instructions together, and\n   at least one. While a run is under way its ', str(('tensors belong' if (v['io'] == 'user') else 'inputs, outputs and slots belong')), ' to it, and another one returns AOT_ERROR_BUSY.\n',)
        if v['feed']:
            yield from ('   A NULL input of ', str(v['name']), '_run_begin: all rows were fed (AOT_ERROR_STATE if not).\n',)
        yield from ('   ', str(v['name']), '_run_abort gives a run up: its outputs mean nothing',)
        if v['state']:
            yield from (', and the state is back at the start',)
        yield from ('. */\nint32_t ', str(v['name']), '_run_begin(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out);\nint32_t ', str(v['name']), '_run_step(void);\nint32_t ', str(v['name']), '_run_until(uint32_t budget);\nvoid ', str(v['name']), '_run_abort(void);\n',)
    if (v['state'] and (v['io'] == 'user')):
        yield from ('\n/* Begins a stream: gives the state its initial values. Must be called before the first run with a state. NULL is ignored. */\nvoid ', str(v['name']), '_reset(void *state);\n',)
    elif v['state']:
        yield from ('\n/* Begins anew: the state gets its initial values, which it also has before the first run. */\nvoid ', str(v['name']), '_reset(void);\n',)
    if ((v['slide'] and v['slide']['push']) and (not v['slide']['rows'])):
        yield from ('\n/* Takes ', str(v['NAME']), '_SLIDE_HOP new rows (', str(v['NAME']), '_INPUT_0_SIZE bytes), moves all windows on and runs every model of the chain as often\n   as it has new rows: the outputs are then, to the bit, those of the whole models on their windows. NULL: the rows lie in\n   ', str(v['name']), '_input_0() already. Returns what ', str(v['name']), '_run returns. */\nint32_t ', str(v['name']), '_push(const ', str(v['inputs'][0]['ctype']), ' *rows);\n',)
    elif (v['slide'] and v['slide']['push']):
        yield from ('\n/* Moves the window on by ', str(v['NAME']), '_SLIDE_HOP rows (', str(v['NAME']), '_INPUT_0_SIZE bytes) and runs the model: the outputs are then, to the\n   bit, those of the whole network on the window. NULL: the rows lie in ', str(v['name']), '_input_0() already. Returns what ', str(v['name']), '_run\n   returns. */\nint32_t ', str(v['name']), '_push(const ', str(v['inputs'][0]['ctype']), ' *rows);\n',)
    if v['feed']:
        yield from ('int32_t ', str(v['name']), '_feed_begin(void);\nint32_t ', str(v['name']), '_feed_row(const ', str(v['feed']['ctype']), ' *row);\nint32_t ', str(v['name']), '_feed_end(const struct ', str(v['name']), '_outputs *out);\n',)
    if (v['io'] == 'arena'):
        yield from ('\n',)
        if v['feed']:
            yield from ('/* The slots in the workspace. Outputs hold until the next run or ', str(v['name']), '_feed_begin. */\n',)
        else:
            yield from ('/* The slots in the workspace. A run uses up its inputs: write them anew before each run. Outputs hold until\n   the next run or until an input slot is written. */\n',)
        for t in ([] if v['feed'] else v['inputs']):
            yield from (str(t['ctype']), ' *', str(v['name']), '_input_', str(t['index']), '(void);\n',)
        for t in v['outputs']:
            yield from (str(t['ctype']), ' *', str(v['name']), '_output_', str(t['index']), '(void);\n',)
    yield from ('\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n',)


def model_c(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of model.c.j2; `v` are the values that it names."""
    yield from (str(v['banner']), '\n#include "', str(v['name']), '.h"\n\n#include <stddef.h>\n\n#include "aot/hooks.h"\n#include "aot/status.h"\n#include "', str(v['name']), '_internal.h"\n',)
    if v['memcpy']:
        yield from ('\n/* As in <string.h>, a header that a freestanding compiler may lack. */\nvoid *memmove(void *to, const void *from, size_t bytes);\n',)
    if ((v['state'] and v['state']['fills']) or (v['steps'] and v['steps']['counters'])):
        yield from ('\n/* As in <string.h>. */\nvoid *memset(void *to, int value, size_t bytes);\n',)
    yield from ('\n',)
    if v['shared']:
        yield from ('#include "aot_workspace.h"\n\n/* void: only the plan knows what is at an offset and how it is aligned. Values that are never needed at the same time share\n   bytes, so a layer may have one address for its result and for an operand or scratch memory that it is done with. */\n#define AT_OFFSET(offset) ((void *)&aot_workspace[offset])\n#define AT(tensor) AT_OFFSET(at_##tensor)\n',)
    elif v['workspace_bytes']:
        yield from ('extern uint8_t ', str(v['name']), '_workspace[', str(v['NAME']), '_WORKSPACE_SIZE];\nAOT_ALIGN(16) AOT_SECTION("', str(v['section']), '") uint8_t ', str(v['name']), '_workspace[', str(v['NAME']), '_WORKSPACE_SIZE];\n\n/* void: only the plan knows what is at an offset and how it is aligned. Values that are never needed at the same time share\n   bytes, so a layer may have one address for its result and for an operand or scratch memory that it is done with. */\n#define AT_OFFSET(offset) ((void *)&', str(v['name']), '_workspace[offset])\n#define AT(tensor) AT_OFFSET(at_##tensor)\n',)
    for p in v['pools']:
        yield from ('\nextern uint8_t ', str(v['name']), '_pool_', str(p['name']), '[', str(v['NAME']), '_POOL_', str(p['name']), '_SIZE];\nAOT_ALIGN(16) AOT_SECTION(".bss.aot_pool_', str(p['name']), '") uint8_t ', str(v['name']), '_pool_', str(p['name']), '[', str(v['NAME']), '_POOL_', str(p['name']), '_SIZE];\n#define AT_', str(p['name']), '_OFFSET(offset) ((void *)&', str(v['name']), '_pool_', str(p['name']), '[offset])\n#define AT_', str(p['name']), '(tensor) AT_', str(p['name']), '_OFFSET(at_##tensor)\n',)
    if v['offsets']:
        yield from ('\n/* Where each tensor is, and the scratch memory of each layer: offsets in bytes. */\nenum {\n',)
        for tensor, offset in v['offsets']:
            yield from ('  at_', str(tensor), ' = ', str(offset), ',\n',)
        yield from ('};\n',)
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
        yield from model_steps_c(v)
    elif v['feed']:
        yield from ('static int32_t next_row = INT32_MAX;\n\n/* One row: copied into its window, and whatever it makes possible is computed. Rows outside of the image are not read. */\nstatic void take(const ', str(v['feed']['ctype']), ' *row) {\n  ', str(v['feed']['text']), '\n  ++next_row;\n}\n\nint32_t ', str(v['name']), '_feed_begin(void) {\n',)
        if (v['state'] and (not v['state']['zero'])):
            yield from ('  if (is_set == 0u) {\n    ', str(v['name']), '_reset();\n  }\n',)
        yield from ('  next_row = ', str(v['feed']['first']), ';\n  while (next_row < 0) {\n    take(AT_OFFSET(0));\n  }\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_feed_row(const ', str(v['feed']['ctype']), ' *row) {\n  if (row == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
        if (v['feed']['align'] > 1):
            yield from ('  if (((uintptr_t)row & ', str((v['feed']['align'] - 1)), 'u) != 0u) {\n    return AOT_ERROR_ALIGN;\n  }\n',)
        yield from ('  if (next_row < 0 || next_row >= ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  take(row);\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_feed_end(const struct ', str(v['name']), '_outputs *out) {\n  if (next_row != ', str(v['feed']['rows']), ') {\n    return AOT_ERROR_STATE;\n  }\n  while (next_row <= ', str(v['feed']['last']), ') {\n    take(AT_OFFSET(0));\n  }\n  next_row = INT32_MAX;\n', str(v['feed']['end']), '\n  return AOT_OK;\n}\n\nint32_t ', str(v['name']), '_run(const struct ', str(v['name']), '_inputs *in, const struct ', str(v['name']), '_outputs *out) {\n  int32_t status;\n  if (in == NULL) {\n    return AOT_ERROR_NULL;\n  }\n  status = ', str(v['name']), '_feed_begin();\n  for (int32_t y = 0; y < ', str(v['feed']['rows']), ' && status == AOT_OK; ++y) {\n    status = in->', str(v['feed']['input']), ' == NULL ? AOT_ERROR_NULL : ', str(v['name']), '_feed_row(&in->', str(v['feed']['input']), '[y * ', str(v['feed']['elements']), ']);\n  }\n  return status == AOT_OK ? ', str(v['name']), '_feed_end(out) : status;\n}\n',)
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
            yield from model_steps_c(v)
        else:
            yield from (str(v['body']), '\n',)
            if v['shared']:
                yield from ('  aot_workspace_release();\n',)
            yield from ('  return AOT_OK;\n}\n',)
    if (v['slide'] and v['slide']['push']):
        yield from ('\nint32_t ', str(v['name']), '_push(const ', str(v['inputs'][0]['ctype']), ' *rows) {\n  const struct ', str(v['name']), '_inputs in = {rows};\n  const struct ', str(v['name']), '_outputs out = {0};\n  return ', str(v['name']), '_run(&in, &out);\n}\n',)


def model_steps_c(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of model_steps.c.j2; `v` are the values that it names."""
    if v['feed']:
        yield from ('/* One row: copied into its window, and whatever it makes possible is computed. Rows outside of the image are not read. */\nstatic void take(const ', str(v['feed']['ctype']), ' *row) {\n  ', str(v['feed']['text']), '\n  ++next_row;\n}\n\nint32_t ', str(v['name']), '_feed_begin(void) {\n  if (at != 0u) {\n    return AOT_ERROR_BUSY;\n  }\n',)
        if (v['state'] and (not v['state']['zero'])):
            yield from ('  if (is_set == 0u) {\n    ', str(v['name']), '_reset();\n  }\n',)
        yield from ('  next_row = ', str(v['feed']['first']), ';\n  while (next_row < 0) {\n    take(AT_OFFSET(0));\n  }\n  return AOT_OK;\n}\n\nstatic int32_t take_checked(const ', str(v['feed']['ctype']), ' *row) {\n  if (row == NULL) {\n    return AOT_ERROR_NULL;\n  }\n',)
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
        yield from ('    case 1u: /* a row of the input, or one below it */\n      if (next_row < ', str(v['feed']['rows']), ') {\n        const int32_t status = take_checked(&run_in.', str(v['feed']['input']), '[next_row * ', str(v['feed']['elements']), ']);\n        if (status != AOT_OK) {\n          leave();\n          return status;\n        }\n      } else if (next_row < ', str(v['steps']['rows']), ') {\n        take(AT_OFFSET(0));\n      }\n      if (next_row == ', str(v['steps']['rows']), ') {\n        ', str(v['steps']['probe']), '\n        at = 2u;\n      }\n      break;\n',)
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


def aot_workspace_h(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of aot_workspace.h.j2; `v` are the values that it names."""
    yield from ('/* SPDX-License-Identifier: 0BSD */\n/* The workspace of several models, which run one at a time. ', str(v['note']), '\n\n   A model claims it when its run starts and lets go of it when the run ends; a run that finds it claimed, because it comes from\n   an interrupt or from another thread while a run is under way, returns AOT_ERROR_BUSY and touches nothing. Inputs that lie in\n   the workspace are lost when another model runs before they are used, and so are outputs that were not fetched. */\n#ifndef AOT_WORKSPACE_H\n#define AOT_WORKSPACE_H\n\n#include <stdbool.h>\n#include <stdint.h>\n\n#define AOT_WORKSPACE_SIZE ', str(v['size']), 'u\n\nextern uint8_t aot_workspace[AOT_WORKSPACE_SIZE];\n\nbool aot_workspace_claim(void);   /* false: it is claimed already */\nvoid aot_workspace_release(void); /* by whoever claimed it */\n\n#endif\n',)


def aot_workspace_c(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of aot_workspace.c.j2; `v` are the values that it names."""
    yield from ('/* SPDX-License-Identifier: 0BSD */\n/* ', str(v['note']), ' */\n#include "aot_workspace.h"\n\n#include "aot/kernel.h"\n\nAOT_ALIGN(16) AOT_SECTION(".bss.aot_workspace") uint8_t aot_workspace[AOT_WORKSPACE_SIZE];\n\nstatic volatile uint8_t claimed;\n\nbool aot_workspace_claim(void) {\n#if __GCC_ATOMIC_CHAR_LOCK_FREE == 2\n  return !__atomic_test_and_set(&claimed, __ATOMIC_ACQUIRE);\n#else\n  /* a core without exclusive access (Cortex-M0): right for interrupts, which end before what they interrupted goes on, but not\n     for threads that take turns in here */\n  if (claimed != 0u) {\n    return false;\n  }\n  claimed = 1u;\n  return true;\n#endif\n}\n\nvoid aot_workspace_release(void) {\n#if __GCC_ATOMIC_CHAR_LOCK_FREE == 2\n  __atomic_clear(&claimed, __ATOMIC_RELEASE);\n#else\n  claimed = 0u;\n#endif\n}\n',)
