/* octavo/draft/reduction.h: functions of liboctavo that reduce gradients through
 * octavo.gradients/1.
 *
 * Provisional, as all of octavo/draft: their names change when anything of it changes. They are for
 * hosts; octavo/octavo.h states what holds for all functions of liboctavo.
 */
#ifndef OCTAVO_DRAFT_REDUCTION_H
#define OCTAVO_DRAFT_REDUCTION_H

#include "octavo/draft/gradients.h"
#include "octavo/octavo.h"

/* The sizes for octavo_reduce_gradients of this bucket: of send and recv each, and of state. */
OCTAVO_EXPORT octavo_status octavo_reduction_bytes(const octavo_run *r, const uint32_t *parameters,
                                                   uint64_t count, uint32_t world,
                                                   uint64_t *buffer_bytes, uint64_t *state_bytes);

/* Reduces the gradients of one bucket with plan_reduction and run_stage, for a host with blocking
 * collectives. send, recv and state have the sizes from octavo_reduction_bytes. THREAD_STREAM. */
OCTAVO_EXPORT octavo_status octavo_reduce_gradients(octavo_run *r,
                                                    const octavo_parameter_item *items,
                                                    uint64_t count, const octavo_collective *c,
                                                    void *send, void *recv, void *state,
                                                    void *stream);

#endif
