/* What the two files of the reference backend share: the session, its lists, and the verbs. */
#pragma once

#include "octavo/kernels.h"
#include "octavo/plugin.h"

typedef struct parameter {
  octavo_parameter_desc desc;
  uint32_t slot; /* of the native weight, once sealed */
} parameter;

struct octavo_session {
  octavo_session_desc desc;
  parameter *parameters;
  uint32_t *linears; /* weight of each */
  uint32_t parameter_count, linear_count;
  uint32_t sealed_parameters, sealed_linears, slot_count, nonfinite_slot;
};

/* Positions in a linear's pointer list, and in the session's. */
enum { LINEAR_WEIGHT = 0, LINEAR_NONFINITE = 1 };
enum { SESSION_NONFINITE = 0 };

/* The most rows or columns: with them no size in bytes comes near 2^63. */
#define REFERENCE_MOST (INT64_C(1) << 40)

/* Whether the host's struct is the one that the verb takes, asked before any other field is read.
 */
#define REFERENCE_IS(call, type, last, its_kind) \
  ((call) != NULL && (call)->size >= OCTAVO_SIZE_THROUGH(type, last) && (call)->kind == (its_kind))

/* Whether x, y, dy, dx and weights may have this dtype. */
static inline int reference_is_plain(uint32_t dtype) {
  return dtype == OCTAVO_F32 || dtype == OCTAVO_BF16 || dtype == OCTAVO_F16;
}

/* Sends an error to the host and returns its status; the text is static. */
octavo_status reference_refuse(const octavo_host *host, octavo_status status, const char *text);

/* linear.c */
octavo_status reference_linear_plan(const octavo_session *s, uint32_t linear,
                                    octavo_linear_plan *out);
octavo_status reference_linear_forward(const octavo_session *s, const octavo_forward_call *c);
octavo_status reference_linear_backward(const octavo_session *s, const octavo_backward_call *c);
