// Which tensors msamp keeps, in which format, for each level and option: the table of MS-AMP.
//
// The tables here are written from MS-AMP's formats, not from the backend's code:
//            weight        master      gradient  exp_avg  exp_avg_sq
//   O1       scaled f16    -           E4M3      f32      f32
//   O2       scaled f16    -           E4M3      E4M3     scaled f16
//   O3       E4M3          scaled f16  E4M3      E4M3     scaled f16
#include <map>

#include "octavo/draft/msamp.h"
#include "tests/plugins/msamp_host.h"

namespace octavo::test {
namespace {

// `access` has one letter for each verb: quantize, forward, backward, end_step, optimizer, reduce.
struct Row {
  std::string name;
  uint32_t role;
  uint32_t dtype;
  int64_t rows;
  int64_t cols;
  std::string access;
  std::string scale;  // the name of the slot with its scale_inv; empty: none
  bool checkpoint = false;
  bool whole = false;
  uint32_t granularity = OCTAVO_PER_TENSOR;
};
using Table = std::vector<Row>;

constexpr int64_t kN = 48, kK = 32, kCount = kN * kK;

void add(Table &t, Row row, int64_t scale_rows = 1, int64_t scale_cols = 1) {
  Row scale = row;
  if (row.dtype != OCTAVO_F32) row.scale = row.name + "/scale_inv";
  t.push_back(row);
  if (row.dtype == OCTAVO_F32) return;
  scale = {row.scale, OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, scale_rows,       scale_cols, row.access,
           "",        row.checkpoint,        row.whole,  OCTAVO_PER_TENSOR};
  t.push_back(scale);
}
void add_state(Table &t, const std::string &name, uint32_t role, uint32_t dtype,
               uint32_t granularity = OCTAVO_PER_TENSOR) {
  const bool flat = granularity == OCTAVO_FLAT_256, expanded = granularity == OCTAVO_EXPANDED_128;
  add(t, {name, role, dtype, kN, kK, "----U-", "", true, true, granularity},
      flat       ? (kCount + 255) / 256
      : expanded ? (kCount + 127) / 128
                 : 1,
      expanded ? 3 : 1);
}
void add_weight_f16(Table &t) {
  add(t, {"weight", OCTAVO_ROLE_WEIGHT, OCTAVO_F16, kN, kK, "R---U-", "", true});
  t.push_back({"weight_cache", OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, kN, kK, "WR----",
               "weight_cache/scale_inv"});
  t.push_back({"weight_cache_t", OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, kK, kN, "W-R---",
               "weight_cache/scale_inv"});
  t.push_back({"weight_cache/scale_inv", OCTAVO_ROLE_SCALE_INV, OCTAVO_F32, 1, 1, "WRR---", ""});
}
// The codes are their own [N, K] cache; backward reads their scale_inv beside the transposed ones.
void add_weight_e4m3(Table &t) {
  add(t, {"weight", OCTAVO_ROLE_WEIGHT, OCTAVO_E4M3FN, kN, kK, "RRR-W-", "", true});
  add(t,
      {"master_weight", OCTAVO_ROLE_MASTER_WEIGHT, OCTAVO_F16, kN, kK, "----U-", "", true, true});
  t.push_back({"weight_cache_t", OCTAVO_ROLE_WEIGHT_CACHE, OCTAVO_E4M3FN, kK, kN, "W-R---",
               "weight/scale_inv"});
}
void add_gradient(Table &t, uint32_t dtype = OCTAVO_E4M3FN) {
  add(t, {"gradient", OCTAVO_ROLE_GRADIENT, dtype, kN, kK, "--U-RU", ""});
}
void add_states(Table &t, uint32_t m, uint32_t v, uint32_t granularity = OCTAVO_PER_TENSOR) {
  add_state(t, "exp_avg", OCTAVO_ROLE_EXP_AVG, m, granularity);
  add_state(t, "exp_avg_sq", OCTAVO_ROLE_EXP_AVG_SQ, v, granularity);
  t.push_back({"step", OCTAVO_ROLE_COUNTER, OCTAVO_I32, 1, 1, "----U-", "", true, true});
}

// The slots of the one linear's weight must be exactly those of the table, in any order.
void expect_table(Msamp &m, const Table &table) {
  std::map<std::string, const octavo_slot *> found;
  for (uint32_t id = 0; id < octavo_run_slot_count(m.run()); ++id) {
    const octavo_slot *s = octavo_run_slot(m.run(), id);
    if (s->owner_kind == OCTAVO_OWNER_PARAMETER) found[text_of(s->name)] = s;
  }
  EXPECT_EQ(found.size(), table.size());
  for (const Row &row : table) {
    ASSERT_EQ(found.count(row.name), 1u) << "no slot " << row.name;
    const octavo_slot &s = *found[row.name];
    EXPECT_EQ(s.role, row.role) << row.name;
    EXPECT_EQ(s.dtype, row.dtype) << row.name;
    EXPECT_EQ(s.rows, row.rows) << row.name;
    EXPECT_EQ(s.cols, row.cols) << row.name;
    EXPECT_EQ(s.flags, row.checkpoint ? uint32_t{OCTAVO_SLOT_CHECKPOINT} : 0u) << row.name;
    EXPECT_EQ(s.shard, row.whole ? uint32_t{OCTAVO_SHARD_WHOLE} : uint32_t{OCTAVO_SHARD_REPLICATED})
        << row.name;
    EXPECT_EQ(s.granularity, row.granularity) << row.name;
    const octavo_slot *scale =
        s.scale_slot == OCTAVO_NONE ? nullptr : octavo_run_slot(m.run(), s.scale_slot);
    EXPECT_EQ(scale == nullptr ? "" : text_of(scale->name), row.scale) << row.name;
    std::string access;
    for (int verb = 0; verb < 6; ++verb) access += "-RWUA"[s.access[verb]];
    EXPECT_EQ(access, row.access) << row.name;
  }
}

struct Level {
  const char *name;
  const char *lines;
  Table table;
};

std::vector<Level> levels() {
  std::vector<Level> all;
  auto add_level = [&](const char *name, const char *lines, auto build) {
    Table t;
    build(t);
    all.push_back({name, lines, t});
  };
  add_level("o1", "opt_level = \"O1\"", [](Table &t) {
    add_weight_f16(t);
    add_gradient(t);
    add_states(t, OCTAVO_F32, OCTAVO_F32);
  });
  add_level("o2", "opt_level = \"O2\"", [](Table &t) {
    add_weight_f16(t);
    add_gradient(t);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_F16);
  });
  add_level("o3", "opt_level = \"O3\"", [](Table &t) {
    add_weight_e4m3(t);
    add_gradient(t);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_F16);
  });
  add_level("block_states", "opt_level = \"O1\"\nstate_format = \"e4m3-block\"", [](Table &t) {
    add_weight_f16(t);
    add_gradient(t);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_FLAT_256);
  });
  add_level("coat_states", "state_format = \"coat\"", [](Table &t) {
    add_weight_f16(t);
    add_gradient(t);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_E4M3FN, OCTAVO_EXPANDED_128);
  });
  add_level("fp32_gradients", "gradient_accumulation = \"fp32\"", [](Table &t) {
    add_weight_f16(t);
    add_gradient(t, OCTAVO_F32);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_F16);
  });
  // Without a cache the calls themselves read the f16 weight.
  add_level("no_cache", "weight_cache = false", [](Table &t) {
    add(t, {"weight", OCTAVO_ROLE_WEIGHT, OCTAVO_F16, kN, kK, "-RR-U-", "", true});
    add_gradient(t);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_F16);
  });
  add_level("msamp04", "profile = \"msamp04\"", [](Table &t) {
    add_weight_f16(t);
    add_gradient(t);
    add_states(t, OCTAVO_E4M3FN, OCTAVO_F16);
    t.push_back({"gradient/reduce_scale", OCTAVO_ROLE_OTHER, OCTAVO_F32, 1, 1, "-----U", "", true});
  });
  return all;
}

class MsampLevels : public testing::TestWithParam<size_t> {};

TEST_P(MsampLevels, slots_of_a_linear_weight) {
  const Level level = levels()[GetParam()];
  Msamp m(level.lines);
  ASSERT_EQ(octavo_run_session_desc(m.run())->caps->alignment, 1u) << "the caches would be padded";
  m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.seal();
  expect_table(m, level.table);
}
INSTANTIATE_TEST_SUITE_P(Of, MsampLevels, testing::Range<size_t>(0, levels().size()),
                         [](const auto &i) { return levels()[i.param].name; });

TEST(MsampSlots, of_the_session) {
  Msamp m("amax_history_len = 5");
  m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.add_linear(rough_matrix(kK, kN, 2, 1.0f));
  m.seal();
  struct Expected {
    const char *name;
    uint32_t role;
    int64_t rows, cols;
    const char *access;
    uint32_t flags, combine;
    double initial;
  };
  const Expected table[] = {
      {"nonfinite", OCTAVO_ROLE_NONFINITE, 1, 1, "AAAWR-", OCTAVO_SLOT_REDUCE, OCTAVO_COMBINE_MAX,
       0},
      {"reduce/saturated", OCTAVO_ROLE_OTHER, 1, 1, "---U-A", OCTAVO_SLOT_REDUCE,
       OCTAVO_COMBINE_SUM, 0},
      {"reduce/added", OCTAVO_ROLE_OTHER, 1, 1, "---U-A", OCTAVO_SLOT_REDUCE, OCTAVO_COMBINE_SUM,
       0},
      {"reduce/prescale", OCTAVO_ROLE_OTHER, 1, 1, "---U-R", OCTAVO_SLOT_CHECKPOINT, 0, 1.0 / 16},
      {"x/amax", OCTAVO_ROLE_AMAX, 1, 2, "-A-U--", OCTAVO_SLOT_REDUCE, OCTAVO_COMBINE_MAX, 0},
      {"x/amax_history", OCTAVO_ROLE_AMAX_HISTORY, 5, 2, "---U--", OCTAVO_SLOT_CHECKPOINT, 0, 0},
      {"x/scale", OCTAVO_ROLE_SCALE, 1, 2, "-R-U--", OCTAVO_SLOT_CHECKPOINT, 0, 1},
      {"x/counter", OCTAVO_ROLE_COUNTER, 1, 2, "-R-U--", OCTAVO_SLOT_CHECKPOINT, 0, 0},
      {"dy/amax", OCTAVO_ROLE_AMAX, 1, 2, "--AU--", OCTAVO_SLOT_REDUCE, OCTAVO_COMBINE_MAX, 0},
      {"dy/amax_history", OCTAVO_ROLE_AMAX_HISTORY, 5, 2, "---U--", OCTAVO_SLOT_CHECKPOINT, 0, 0},
      {"dy/scale", OCTAVO_ROLE_SCALE, 1, 2, "--RU--", OCTAVO_SLOT_CHECKPOINT, 0, 1},
      {"dy/counter", OCTAVO_ROLE_COUNTER, 1, 2, "--RU--", OCTAVO_SLOT_CHECKPOINT, 0, 0}};
  size_t found = 0;
  for (uint32_t id = 0; id < octavo_run_slot_count(m.run()); ++id)
    found += octavo_run_slot(m.run(), id)->owner_kind == OCTAVO_OWNER_SESSION ? 1 : 0;
  EXPECT_EQ(found, std::size(table));
  for (const Expected &e : table) {
    const octavo_slot *s = m.slot(e.name);
    ASSERT_NE(s, nullptr) << e.name;
    EXPECT_EQ(s->role, e.role) << e.name;
    EXPECT_EQ(s->dtype, OCTAVO_F32) << e.name;
    EXPECT_EQ(s->rows, e.rows) << e.name;
    EXPECT_EQ(s->cols, e.cols) << e.name;
    EXPECT_EQ(s->flags, e.flags) << e.name;
    EXPECT_EQ(s->combine, e.combine) << e.name;
    EXPECT_EQ(s->initial, e.initial) << e.name;
    EXPECT_EQ(s->labels != nullptr, e.cols == 2) << e.name;
    std::string access;
    for (int verb = 0; verb < 6; ++verb) access += "-RWUA"[s->access[verb]];
    EXPECT_EQ(access, e.access) << e.name;
  }
}

// Any other pre-scale needs no memory of its own.
TEST(MsampSlots, fixed_prescale_has_no_slot) {
  Msamp m("prescale = \"full\"");
  m.add_linear(rough_matrix(kN, kK, 1, 1.0f));
  m.seal();
  EXPECT_EQ(m.slot("reduce/prescale"), nullptr);
}

}  // namespace
}  // namespace octavo::test
