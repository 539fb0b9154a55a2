// Hosts and descriptions of other ages: null, empty and shorter ones are read to their end only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/environment.h"
#include "tests/support/fake_plugin.h"
#include "tests/support/model.h"

namespace octavo::test {
namespace {

class HostTest : public testing::Test {
 protected:
  // Opens the fake with this host, whose memory ends where its size ends.
  octavo_status open_with(const octavo_host *host) {
    put_fake(dir, "plugins");
    request.set("fp8.backend", "fake").set("plugins.trust", "dev").plugins(dir / "plugins");
    octavo_open_desc d = request.desc();
    d.host = host;
    octavo_run *raw = nullptr;
    const octavo_status status = octavo_open(&d, &raw);
    run.reset(raw);
    return status;
  }
  static std::vector<char> cut(const octavo_host &host, uint32_t size) {
    octavo_host own = host;
    own.size = size;
    return {reinterpret_cast<char *>(&own), reinterpret_cast<char *>(&own) + size};
  }

  Environment environment;
  TempDir dir;
  Request request;
  RunPtr run;
};

TEST_F(HostTest, null_host) {
  EXPECT_EQ(open_with(nullptr), OCTAVO_OK);
  const octavo_session_desc *d = octavo_run_session_desc(run.get());
  ASSERT_NE(d->host, nullptr);  // plugins always get a complete one
  octavo_diagnostic diagnostic{};
  d->host->diagnose(d->host->ctx, &diagnostic);
  EXPECT_EQ(d->host->get_extension(d->host->ctx, borrow(OCTAVO_PARALLEL_ID)), nullptr);
}

TEST_F(HostTest, host_without_extensions) {
  const auto memory = cut(*request.host.get(), OCTAVO_SIZE_THROUGH(octavo_host, diagnose));
  EXPECT_EQ(open_with(reinterpret_cast<const octavo_host *>(memory.data())), OCTAVO_OK);
  const octavo_session_desc *d = octavo_run_session_desc(run.get());
  EXPECT_EQ(d->host->get_extension(d->host->ctx, borrow(OCTAVO_PARALLEL_ID)), nullptr);
  EXPECT_THAT(request.host.texts(OCTAVO_SEVERITY_INFO), testing::SizeIs(1));
}

TEST_F(HostTest, host_without_diagnose) {
  const auto memory = cut(*request.host.get(), OCTAVO_SIZE_THROUGH(octavo_host, ctx));
  const auto *host = reinterpret_cast<const octavo_host *>(memory.data());
  EXPECT_EQ(open_with(host), OCTAVO_OK);
  Request refused;
  octavo_open_desc d = refused.set("fp8.backend", "absent").desc();
  d.host = host;
  octavo_run *raw = nullptr;
  EXPECT_EQ(octavo_open(&d, &raw), OCTAVO_UNSUPPORTED);
  EXPECT_THAT(request.host.all(), testing::IsEmpty());
}

TEST_F(HostTest, host_with_null_functions) {
  octavo_host host = *request.host.get();
  host.diagnose = nullptr;
  host.get_extension = nullptr;
  EXPECT_EQ(open_with(&host), OCTAVO_OK);
  const octavo_session_desc *d = octavo_run_session_desc(run.get());
  EXPECT_EQ(d->host->get_extension(d->host->ctx, borrow(OCTAVO_PARALLEL_ID)), nullptr);
}

TEST_F(HostTest, threads_of_the_host_reach_the_plugin) {
  octavo_threads *threads = nullptr;
  ASSERT_EQ(octavo_threads_open(2, &threads), OCTAVO_OK);
  request.host.set_parallel(octavo_threads_parallel(threads));
  EXPECT_EQ(open_with(request.host.get()), OCTAVO_OK);
  const octavo_session_desc *d = octavo_run_session_desc(run.get());
  EXPECT_EQ(d->host->get_extension(d->host->ctx, borrow(OCTAVO_PARALLEL_ID)),
            octavo_threads_parallel(threads));
  run.reset();
  octavo_threads_close(threads);
}

// Nothing is asked for, so the defaults hold; whether they can run depends on where plugins are.
TEST_F(HostTest, null_description_is_the_defaults) {
  std::string out;
  EXPECT_EQ(octavo_check_config(nullptr, borrow("text"), Request::append_line, &out), OCTAVO_OK);
  EXPECT_THAT(out, testing::ContainsRegex("mixed_precision +=  *\"fp8\"  .default."));
}

TEST_F(HostTest, description_of_size_zero_is_the_defaults) {
  octavo_open_desc d = request.set("mixed_precision", "bf16").desc();
  d.size = 0;
  std::string out;
  EXPECT_EQ(octavo_check_config(&d, borrow("text"), Request::append_line, &out), OCTAVO_OK);
  EXPECT_THAT(out, testing::ContainsRegex("mixed_precision +=  *\"fp8\"  .default."));
}

TEST_F(HostTest, short_description_is_read_to_its_end) {
  request.text("mixed_precision = \"bf16\"").set("mixed_precision", "no");
  const octavo_open_desc whole = request.desc();
  const uint32_t size = OCTAVO_SIZE_THROUGH(octavo_open_desc, config_text);
  std::vector<char> memory(reinterpret_cast<const char *>(&whole),
                           reinterpret_cast<const char *>(&whole) + size);
  std::memcpy(memory.data(), &size, sizeof(size));
  octavo_run *raw = nullptr;
  ASSERT_EQ(octavo_open(reinterpret_cast<const octavo_open_desc *>(memory.data()), &raw),
            OCTAVO_OK);
  run.reset(raw);
  EXPECT_EQ(text_of(octavo_run_precision(raw)), "bf16");  // the overrides are beyond the end
}

TEST_F(HostTest, null_outputs) {
  const octavo_open_desc d = request.desc();
  EXPECT_EQ(octavo_open(&d, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_explain(&d, borrow("text"), nullptr, nullptr), OCTAVO_INVALID);
  EXPECT_EQ(octavo_report(nullptr, borrow("text"), Request::append_line, nullptr), OCTAVO_INVALID);
}

TEST_F(HostTest, version_is_the_headers) {
  EXPECT_EQ(text_of(octavo_version()), std::to_string(OCTAVO_VERSION_MAJOR) + "." +
                                           std::to_string(OCTAVO_VERSION_MINOR) + "." +
                                           std::to_string(OCTAVO_VERSION_PATCH));
}

}  // namespace
}  // namespace octavo::test
