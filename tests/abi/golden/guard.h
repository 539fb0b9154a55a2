/* guard.h: structs that end where readable memory ends.
 *
 * A reader that looks past the size it was given dies on the spot, instead of finding zeros that
 * happen to lie there; so does a writer.
 */
#ifndef OCTAVO_TESTS_GUARD_H
#define OCTAVO_TESTS_GUARD_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* `bytes`, a multiple of 8 and at most a page, all 0. Never freed. */
static inline void *guarded(size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  uint8_t *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED || bytes > page || mprotect(at + page, page, PROT_NONE) != 0) {
    perror("guarded");
    exit(2);
  }
  return at + page - bytes;
}

static inline void *guarded_head(size_t bytes, uint32_t kind) {
  uint32_t *head = guarded(bytes);
  head[0] = (uint32_t)bytes;
  head[1] = kind;
  return head;
}

/* A struct that can grow, of this side's size. */
#define GUARDED(type, kind) ((type *)guarded_head(sizeof(type), (kind)))

#endif
