// The table of the handles, with room for few objects.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "sdk/src/base/failure.h"
#include "sdk/src/base/handles.h"

namespace octavo {
namespace {

// A table gives nothing back, so it lives as long as the process.
HandleTable &table_of(uint64_t places) {
  static auto *const tables = new std::vector<HandleTable *>;
  tables->push_back(new HandleTable(9, places));
  return *tables->back();
}

TEST(HandleTable, is_full_at_its_limit) {
  HandleTable &table = table_of(1500);
  int object = 0;
  std::vector<uint64_t> handles;
  for (int i = 0; i < 1500; ++i) handles.push_back(table.open(&object));
  EXPECT_EQ(std::set<uint64_t>(handles.begin(), handles.end()).size(), 1500u);
  try {
    table.open(&object);
    FAIL() << "accepted";
  } catch (const Failure &f) {
    EXPECT_EQ(f.status(), OCTAVO_NO_RESOURCE);
    EXPECT_EQ(f.text(),
              "expected at most 1500 open objects of one kind, found more; close those "
              "that are no longer used");
  }
  EXPECT_EQ(table.close(handles[700]), &object);
  EXPECT_EQ(table.close(handles[700]), nullptr);
  const uint64_t next = table.open(&object);
  EXPECT_NE(next, handles[700]);
  EXPECT_EQ(table.find(handles[700]), nullptr);
  EXPECT_EQ(table.find(next), &object);
}

TEST(HandleTable, retired_places_are_not_used_again) {
  HandleTable &table = table_of(1);
  int object = 0;
  const uint64_t handle = table.open(&object);
  EXPECT_EQ(table.close(handle, HandleTable::After::kRetire), &object);
  EXPECT_EQ(table.find(handle), nullptr);
  EXPECT_THROW(table.open(&object), Failure);
}

TEST(HandleTable, numbers_that_name_nothing) {
  HandleTable &table = table_of(4);
  for (const uint64_t handle : {uint64_t{0}, uint64_t{1}, uint64_t{16}, UINT64_MAX}) {
    EXPECT_EQ(table.find(handle), nullptr);  // without a chunk
    EXPECT_EQ(table.close(handle), nullptr);
  }
  int object = 0;
  table.open(&object);
  for (const uint64_t handle : {uint64_t{0}, uint64_t{1}, uint64_t{16}}) {
    EXPECT_EQ(table.find(handle), nullptr);
    EXPECT_EQ(table.close(handle), nullptr);
  }
}

}  // namespace
}  // namespace octavo
