/* next_report.h: what a host of the next minor finds in a plugin of any age. Empty for older hosts.
 */
#ifndef OCTAVO_TESTS_NEXT_REPORT_H
#define OCTAVO_TESTS_NEXT_REPORT_H

#include "step.h"

#ifdef OCTAVO_NEXT_ID
/* next_function of a complete table: a stub answers OCTAVO_UNSUPPORTED. The hot field leaves out
 * the bias where it is read. */
static inline int report_function_and_field(layer *l) {
  uint64_t answer = 0;
  const octavo_status status = l->backend->next_function(&answer);
  const int used = status == OCTAVO_OK && answer == OCTAVO_NEXT_MARK;
  printf("next function: %s\n", used                           ? "used"
                                : status == OCTAVO_UNSUPPORTED ? "unsupported"
                                                               : "WRONG");
  const numbers before = l->n; /* exact, with the bias */
  set_numbers(&l->n);
  if (!run_forward(l, OCTAVO_NEXT_MARK) || !run_backward(l)) return 1;
  const int read = memcmp(before.y, l->n.y, sizeof l->n.y) != 0;
  printf("next field of a call: %s\n", read ? "used" : "not read");
  return (!used && status != OCTAVO_UNSUPPORTED) + check_numbers(&l->n, !read);
}
#endif

#endif
