// Finding NCCL, opening from an id or a communicator of the host, and closing.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/host_adapters/ranks/nccl/world.h"
#include "tests/support/cuda_on_cpu/runtime.h"

namespace octavo::test {
namespace {

using cuda::nccl::Comm;
using cuda::nccl::Result;
using cuda::nccl::UniqueId;
using testing::Each;
using testing::HasSubstr;

class NcclOpen : public testing::Test {
 protected:
  NcclOpen() {
    reset_fake();
    EXPECT_EQ(octavo_nccl_get_id(listener.host(), OCTAVO_STR(OCTAVO_FAKE_NCCL), &id), OCTAVO_OK)
        << listener.first();
  }
  ~NcclOpen() override {
    cuda_on_cpu::reset();
    EXPECT_EQ(cuda_on_cpu::events_alive(), 0);
    EXPECT_EQ(fake().violations, 0) << fake().violation.load();
  }
  octavo_nccl_desc desc() {
    octavo_nccl_desc d = {};
    d.size = sizeof(d);
    d.world = 1;
    d.id = &id;
    d.host = listener.host();
    d.library = OCTAVO_STR(OCTAVO_FAKE_NCCL);
    return d;
  }
  octavo_status open(const octavo_nccl_desc &d) {
    out = reinterpret_cast<octavo_nccl *>(this);
    const octavo_status status = octavo_nccl_open(&d, &out);
    if (status != OCTAVO_OK) {
      EXPECT_EQ(out, nullptr);
    }
    return status;
  }
  void expect_refused(octavo_status status, const octavo_nccl_desc &d, const char *text) {
    EXPECT_EQ(open(d), status);
    EXPECT_THAT(listener.first(), HasSubstr(text));
    EXPECT_EQ(listener.texts().size(), 1u);  // one failure, one text
    EXPECT_EQ(fake().alive, 0);
  }
  Listener listener;
  octavo_nccl_id id = {};
  octavo_nccl *out = nullptr;
};

TEST_F(NcclOpen, without_nccl) {
  octavo_nccl_desc d = desc();
  d.library = OCTAVO_STR("/nowhere/libnccl.so.2");
  expect_refused(OCTAVO_NO_RESOURCE, d,
                 "octavo_nccl_open: /nowhere/libnccl.so.2: expected NCCL 2.14 or later of major 2, "
                 "found none (/nowhere/libnccl.so.2: cannot open shared object file");
  EXPECT_THAT(listener.first(), HasSubstr("install libnccl2"));
  EXPECT_EQ(octavo_nccl_get_id(listener.host(), d.library, &id), OCTAVO_NO_RESOURCE);
}

TEST_F(NcclOpen, versions) {
  struct Case {
    int version;
    const char *found;  // null: accepted
  };
  for (const Case &c :
       {Case{2804, "found 2.8.4"}, Case{21304, "found 2.13.4"}, Case{21403, nullptr},
        Case{22809, nullptr}, Case{23007, nullptr}, Case{30000, "found 3.0.0"}}) {
    Listener own;
    fake().version = c.version;
    octavo_nccl_id made;
    EXPECT_EQ(octavo_nccl_get_id(own.host(), OCTAVO_STR(OCTAVO_FAKE_NCCL), &made),
              c.found == nullptr ? OCTAVO_OK : OCTAVO_INCOMPATIBLE);
    if (c.found != nullptr) {
      EXPECT_THAT(own.first(), HasSubstr(c.found));
    }
  }
}

TEST_F(NcclOpen, library_that_lacks_a_function) {
  octavo_nccl_desc d = desc();
  d.library = OCTAVO_STR(OCTAVO_FAKE_NCCL_INCOMPLETE);
  expect_refused(OCTAVO_INCOMPATIBLE, d,
                 "expected the function ncclCommInitRankConfig, found none");
}

TEST_F(NcclOpen, descs_that_make_no_sense) {
  struct Case {
    void (*change)(octavo_nccl_desc &d);
    const char *text;
  };
  const Case cases[] = {
      {[](octavo_nccl_desc &d) { d.id = nullptr; }, "id: expected the id of rank 0, found null"},
      {[](octavo_nccl_desc &d) { d.world = 0; }, "found rank 0 of 0"},
      {[](octavo_nccl_desc &d) { d.rank = 1; }, "found rank 1 of 1"},
      {[](octavo_nccl_desc &d) { d.world = 4097; }, "expected 1 to 4096 ranks"},
      {[](octavo_nccl_desc &d) { d.scratch_bytes = 65528; }, "from 65536 on, found 65528"},
      {[](octavo_nccl_desc &d) { d.scratch_bytes = 65537; }, "multiple of 8"},
      {[](octavo_nccl_desc &d) { d.library.data = nullptr; }, "library: expected an address"},
      {[](octavo_nccl_desc &d) { d.reserved = 1; }, "expected reserved 0, found 1"}};
  for (const Case &c : cases) {
    Listener own;
    octavo_nccl_desc d = desc();
    d.host = own.host();
    c.change(d);
    EXPECT_EQ(open(d), OCTAVO_INVALID) << c.text;
    EXPECT_THAT(own.first(), HasSubstr(c.text));
  }
  EXPECT_EQ(octavo_nccl_open(nullptr, &out), OCTAVO_INVALID);
  octavo_nccl_desc d = desc();
  EXPECT_EQ(octavo_nccl_open(&d, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(listener.first(), "octavo_nccl_open: out: expected an address, found null");
  EXPECT_EQ(octavo_nccl_get_id(listener.host(), d.library, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_nccl_collective(nullptr), nullptr);
  EXPECT_EQ(octavo_nccl_check(nullptr), OCTAVO_INVALID);
  octavo_nccl_close(nullptr);
}

TEST_F(NcclOpen, start_that_nccl_refuses) {
  fake().init_result = cuda::nccl::kSystemError;
  expect_refused(
      OCTAVO_NO_RESOURCE, desc(),
      "octavo_nccl_open: rank 0 of 1: ncclCommInitRankConfig answered ncclSystemError: a "
      "text of the fake (the last error of the fake); NCCL_DEBUG=WARN");
}

TEST_F(NcclOpen, start_that_fails_while_in_progress) {
  fake().init_async = cuda::nccl::kRemoteError;
  expect_refused(OCTAVO_FAILED_DEVICE, desc(), "ncclCommInitRankConfig answered ncclRemoteError");
  EXPECT_EQ(fake().aborts, 1);
}

TEST_F(NcclOpen, start_that_never_ends) {
  fake().init_hangs = true;
  octavo_nccl_desc d = desc();
  d.deadline_ms = 60;
  expect_refused(OCTAVO_FAILED_DEVICE, d,
                 "octavo_nccl_open: rank 0 of 1: expected an end within 60 ms, found it pending");
  EXPECT_EQ(fake().aborts, 1);
}

TEST_F(NcclOpen, rank_that_never_comes) {
  octavo_nccl_desc d = desc();
  d.world = 2;
  d.deadline_ms = 60;
  expect_refused(OCTAVO_FAILED_DEVICE, d, "expected an end within 60 ms");
}

TEST_F(NcclOpen, without_memory_on_the_device) {
  cuda_on_cpu::script().free_bytes = 1000;
  expect_refused(OCTAVO_NO_RESOURCE, desc(), "CUDA answered cudaErrorMemoryAllocation");
}

TEST_F(NcclOpen, device_that_does_not_exist) {
  octavo_nccl_desc d = desc();
  d.device = 3;
  expect_refused(OCTAVO_FAILED_DEVICE, d, "CUDA answered cudaErrorInvalidDevice");
}

TEST_F(NcclOpen, id_that_nccl_does_not_give) {
  fake().get_id_result = cuda::nccl::kInternalError;
  EXPECT_EQ(octavo_nccl_get_id(listener.host(), OCTAVO_STR(OCTAVO_FAKE_NCCL), &id),
            OCTAVO_INTERNAL);
  EXPECT_THAT(listener.first(), HasSubstr("ncclGetUniqueId answered ncclInternalError"));
}

// Ranks that would cut their operations differently.
TEST_F(NcclOpen, different_scratch) {
  NcclWorld world(2);
  world.new_id();
  octavo_nccl *opened[2];
  EXPECT_THAT(world.each([&](uint32_t rank) {
    octavo_nccl_desc d = world.desc(rank);
    d.scratch_bytes = 65536 + 8 * rank;
    return octavo_nccl_open(&d, &opened[rank]);
  }),
              Each(octavo_status{OCTAVO_INVALID}));
  EXPECT_THAT(world.listener(0).first(),
              HasSubstr("found 65536 on rank 0 and 65544 on rank 1; give every rank the same"));
}

// A desc of a caller whose header ends before `reserved`.
TEST_F(NcclOpen, shorter_desc) {
  octavo_nccl_desc d = desc();
  d.reserved = 77;
  d.size = OCTAVO_SIZE_THROUGH(octavo_nccl_desc, deadline_ms);
  ASSERT_EQ(open(d), OCTAVO_OK) << listener.first();
  octavo_nccl_close(out);
}

TEST_F(NcclOpen, closed_while_a_peer_is_gone) {
  fake().finalize_hangs = true;
  octavo_nccl_desc d = desc();
  d.deadline_ms = 300;
  ASSERT_EQ(open(d), OCTAVO_OK) << listener.first();
  octavo_nccl_close(out);
  EXPECT_EQ(fake().aborts, 1);
  EXPECT_EQ(fake().destroys, 0);
  EXPECT_THAT(listener.first(), HasSubstr("octavo_nccl_close: rank 0 of 1: expected an end"));
}

TEST_F(NcclOpen, child_of_fork) {
  ASSERT_EQ(open(desc()), OCTAVO_OK) << listener.first();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const octavo_collective &c = *octavo_nccl_collective(out);
    float value = 1;
    int wrong = 0;
    wrong += c.run(c.ctx, OCTAVO_COLLECTIVE_ALL_REDUCE_SUM, OCTAVO_F32, &value, 1, &value, 1,
                   nullptr) != OCTAVO_WRONG_STATE;
    wrong += c.broadcast(c.ctx, 0, &value, 4, nullptr) != OCTAVO_WRONG_STATE;
    wrong += octavo_nccl_check(out) != OCTAVO_WRONG_STATE;
    octavo_nccl_abort(out);
    octavo_nccl_close(out);
    wrong += fake().aborts + fake().destroys;
    _exit(wrong);
  }
  int ended = -1;
  ASSERT_EQ(waitpid(child, &ended, 0), child);
  EXPECT_EQ(ended, 0);
  EXPECT_EQ(octavo_nccl_check(out), OCTAVO_OK);
  octavo_nccl_close(out);
}

}  // namespace
}  // namespace octavo::test
