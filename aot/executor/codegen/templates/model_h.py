"""model.h.j2 as Python; written by scripts/c_templates.py."""
# ruff: noqa
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def render(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of the file; `v` are the values that the template names."""
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
