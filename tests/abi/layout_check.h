/* layout_check.h: compares what this compiler makes of the headers with layout_v1.inc.
 *
 * Included once by a C and once by a C++ program: the two languages must agree byte for byte. The
 * fields of each struct must also cover it without a gap, so the table cannot miss a field and no
 * compiler can hide padding.
 */
#ifndef OCTAVO_TESTS_LAYOUT_CHECK_H
#define OCTAVO_TESTS_LAYOUT_CHECK_H

#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "octavo/draft/fp4.h"
#include "octavo/draft/grouped.h"
#include "octavo/draft/layer.h"
#include "octavo/draft/msamp.h"
#include "octavo/draft/one_pass.h"
#include "octavo/draft/reduction.h"
#include "octavo/draft/streams.h"
#include "octavo/octavo.h"

enum layout_row_type { kLayoutStruct, kLayoutField, kLayoutValue, kLayoutText };

typedef struct layout_row {
  enum layout_row_type type;
  const char *owner; /* the struct, value or text */
  const char *field;
  long long expected[3]; /* struct: size, alignment, kind or 0; field: offset, size; value */
  long long found[3];
  const char *expected_text;
  const char *found_text;
} layout_row;

#define FROZEN(name, size, alignment) \
  {kLayoutStruct, #name, "", {size, alignment, 0}, {sizeof(name), alignof(name), 0}, "", ""},
#define GROWABLE(name, size, alignment, kind) \
  {kLayoutStruct,                             \
   #name,                                     \
   "growable",                                \
   {size, alignment, kind},                   \
   {sizeof(name), alignof(name), kind},       \
   "",                                        \
   ""},
#define FIELD(name, field, offset, size, declaration)      \
  {kLayoutField,                                           \
   #name,                                                  \
   #field,                                                 \
   {offset, size, 0},                                      \
   {offsetof(name, field), sizeof(((name *)0)->field), 0}, \
   "",                                                     \
   ""},
#define VALUE(name, value) {kLayoutValue, #name, "", {value, 0, 0}, {name, 0, 0}, "", ""},
#define TEXT(name, text) {kLayoutText, #name, "", {0, 0, 0}, {0, 0, 0}, text, name},
#define DECLARATION(name, declaration)

static const layout_row kLayoutRows[] = {
#include "layout_draft.inc"
#include "layout_v1.inc"
};

static int layout_faults = 0;

static void expect_number(const char *owner, const char *field, const char *what,
                          long long expected, long long found) {
  if (expected == found) return;
  printf("%s%s%s: expected %s %lld, found %lld\n", owner, *field ? "." : "", field, what, expected,
         found);
  ++layout_faults;
}

/* `end` is the first byte after the last field seen; each field must start there. */
static void check_struct_end(const layout_row *of_struct, long long end) {
  if (of_struct) expect_number(of_struct->owner, "(end)", "offset", of_struct->found[0], end);
}

static void check_rows(const layout_row *rows, size_t count) {
  const layout_row *current = NULL;
  long long end = 0;
  long long fields_seen = 0;
  for (size_t i = 0; i < count; ++i) {
    const layout_row *row = &rows[i];
    if (row->type == kLayoutStruct) {
      check_struct_end(current, end);
      current = row;
      end = 0;
      fields_seen = 0;
      expect_number(row->owner, "", "size", row->expected[0], row->found[0]);
      expect_number(row->owner, "", "alignment", row->expected[1], row->found[1]);
    } else if (row->type == kLayoutField) {
      expect_number(row->owner, row->field, "offset", row->expected[0], row->found[0]);
      expect_number(row->owner, row->field, "bytes", row->expected[1], row->found[1]);
      expect_number(row->owner, row->field, "offset (no padding before it)", end, row->found[0]);
      end = row->found[0] + row->found[1];
      const int growable = current && *current->field;
      const int is_header = strcmp(row->field, "size") == 0 || strcmp(row->field, "kind") == 0;
      if (fields_seen < 2 && growable)
        expect_number(row->owner, row->field, "place among {size, kind}", 1,
                      strcmp(row->field, fields_seen == 0 ? "size" : "kind") == 0);
      if (!growable && is_header && strcmp(row->field, "kind") == 0)
        expect_number(row->owner, row->field, "headers in a frozen struct", 0, 1);
      ++fields_seen;
    } else if (row->type == kLayoutValue) {
      expect_number(row->owner, "", "value", row->expected[0], row->found[0]);
    } else if (strcmp(row->expected_text, row->found_text) != 0) {
      printf("%s: expected \"%s\", found \"%s\"\n", row->owner, row->expected_text,
             row->found_text);
      ++layout_faults;
    }
  }
  check_struct_end(current, end);
}

/* Two structs with one kind could be taken for each other. */
static void check_kinds(const layout_row *rows, size_t count) {
  for (size_t i = 0; i < count; ++i)
    for (size_t j = i + 1; j < count; ++j)
      if (rows[i].type == kLayoutStruct && rows[j].type == kLayoutStruct && *rows[i].field &&
          *rows[j].field && rows[i].found[2] == rows[j].found[2]) {
        printf("%s and %s: expected different kinds, found %lld twice\n", rows[i].owner,
               rows[j].owner, rows[i].found[2]);
        ++layout_faults;
      }
}

/* The check must see a fault: the same rows with one number off. */
static void check_the_check(void) {
  static const layout_row wrong[] = {
      {kLayoutStruct, "planted", "growable", {8, 4, 1}, {12, 4, 1}, "", ""},
      {kLayoutField, "planted", "size", {0, 4, 0}, {0, 4, 0}, "", ""},
      {kLayoutField, "planted", "other", {4, 4, 0}, {8, 4, 0}, "", ""},
      {kLayoutText, "PLANTED_ID", "", {0, 0, 0}, {0, 0, 0}, "a/1", "a/2"},
  };
  puts("five planted faults:");
  check_rows(wrong, sizeof wrong / sizeof wrong[0]);
  const int found = layout_faults;
  layout_faults = 0;
  expect_number("planted", "", "faults reported", 5, found);
  puts("end of the planted faults");
}

static int run_layout_check(const char *language) {
  const size_t count = sizeof kLayoutRows / sizeof kLayoutRows[0];
  check_the_check();
  check_rows(kLayoutRows, count);
  check_kinds(kLayoutRows, count);
  printf("%s: %zu rows of layout_v1.inc, %d faults\n", language, count, layout_faults);
  return layout_faults == 0 ? 0 : 1;
}

#endif
