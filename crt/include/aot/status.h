/* SPDX-License-Identifier: Apache-2.0 */
/* Results of <model>_run: 0 or one of these negative codes; of <model>_run_step and <model>_run_until also AOT_MORE. */
#ifndef AOT_STATUS_H
#define AOT_STATUS_H

enum aot_status {
  AOT_OK = 0,
  AOT_MORE = 1,         /* the run goes on in further steps */
  AOT_ERROR_NULL = -1,  /* an argument or a tensor pointer that must be given is NULL */
  AOT_ERROR_ALIGN = -2, /* a tensor pointer is not aligned for its type */
  AOT_ERROR_STATE = -3, /* a call out of order: rows fed out of order, a stateful model run before it was reset */
  AOT_ERROR_BUSY = -4,  /* another run is under way: in steps, or in the workspace that several models share */
  AOT_ERROR_ITERATIONS = -5 /* a loop of the model has not ended after aot compile --max-iterations */
};

#endif
