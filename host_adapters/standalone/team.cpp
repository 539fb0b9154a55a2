// Ranks as threads share everything but their models; ranks as processes agree by what they send.
#include "host_adapters/standalone/team.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "host_adapters/standalone/error.h"

namespace octavo::standalone {
namespace {

// What the library's messages say of the first failure.
std::string first_error(octavo::Host &host) {
  for (const octavo::Diagnostic &d : host.take())
    if (d.severity == OCTAVO_SEVERITY_ERROR) return d.text;
  return "no message";
}

std::string random_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 16; ++i) id += "0123456789abcdef"[random() % 16];
  return id;
}

// Several processes that know nothing of each other would train the same, into the same files.
void refuse_launcher(const Distributed &d) {
  for (const auto &[variable, engine] :
       {std::pair("OMPI_COMM_WORLD_SIZE", "mpi"), std::pair("PMI_SIZE", "mpi"),
        std::pair("WORLD_SIZE", "nccl")}) {
    const char *size = std::getenv(variable);
    expect(size == nullptr || std::atoi(size) <= 1,
           "distributed.engine = \"threads\" (" + d.origin + ")",
           "one process, whose threads are the ranks of --ranks",
           "one of " + std::string(size == nullptr ? "" : size) + " processes (" + variable + ")",
           std::string("set distributed.engine = \"") + engine + "\" in octavo.toml, or start one");
  }
}

}  // namespace

std::string said(const std::vector<octavo::Diagnostic> &diagnostics) {
  std::string all;
  for (const octavo::Diagnostic &d : diagnostics) {
    if (d.severity < OCTAVO_SEVERITY_WARNING) continue;
    all += d.severity == OCTAVO_SEVERITY_WARNING ? "\nwarning: " : "\nerror: ";
    all += (d.domain.empty() ? "" : d.domain + ": ") + d.text;
  }
  return all;
}

Distributed read_distributed(const std::string &config_path) {
  octavo::Settings settings;
  settings.path(config_path);
  const octavo::Configuration found = octavo::configuration(settings);
  if (found.status == OCTAVO_NO_RESOURCE)
    throw octavo::Error("octavo_settings", found.status, found.diagnostics);
  expect(
      found.status == OCTAVO_OK, config_path, "a configuration that Octavo can read",
      "octavo_settings answered status " + std::to_string(found.status) + said(found.diagnostics),
      "follow the messages above; `octavo config show` prints every value");
  const auto value = [&](const char *key) { return found.values.at(key).text; };
  Distributed d;
  d.engine = value("distributed.engine");
  d.origin = found.values.at("distributed.engine").origin;
  d.timeout_s = std::stoll(value("distributed.timeout_s"));
  d.run_id = value("checkpoint.run_id");
  d.on_cuda = value("device.kind") == "cuda";
  return d;
}

Team::Team(const Distributed &distributed, uint32_t ranks) {
  if (distributed.engine == "threads") {
    refuse_launcher(distributed);
    world_ = std::max<uint32_t>(ranks, 1);
    near_ = world_;
    threads_.emplace(world_);
    return;
  }
  process_ = distributed.engine == "mpi" ? open_mpi(distributed) : open_nccl(distributed);
  communicator_ = process_->communicator();
  world_ = communicator_.world();
  if (distributed.on_cuda) settings_.device_index = process_->device_index();
  together([&] {
    expect(ranks == 0 || ranks == world_, "--ranks",
           std::to_string(world_) + ", as many processes as the launcher started for engine \"" +
               distributed.engine + "\" (" + distributed.origin + ")",
           std::to_string(ranks), "leave out --ranks, or start as many processes");
  });
  count_near();
  share_run_id(distributed);
}

void Team::count_near() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::vector<std::string> all = communicator_.gather_texts(host);
  near_ = static_cast<uint32_t>(std::count(all.begin(), all.end(), host));
}

// Files of one checkpoint name one run, and a new start is another one.
void Team::share_run_id(const Distributed &distributed) {
  if (!distributed.run_id.empty()) return;
  settings_.run_id = communicator_.gather_texts(random_id()).front();
}

void Team::run(const std::function<void(uint32_t)> &body) {
  if (process_ == nullptr)
    threads_->run(body);
  else
    body(first());
}

void Team::together(const std::function<void()> &body) {
  guarded([&] {
    std::string text;
    std::exception_ptr error;
    try {
      body();
    } catch (const UserError &e) {
      error = std::current_exception();
      text = e.what();
    }
    const std::vector<std::string> all = gather(text);
    const auto first_said =
        std::find_if(all.begin(), all.end(), [](const std::string &one) { return !one.empty(); });
    if (first_said == all.end()) return;
    const bool is_first = first_said - all.begin() == static_cast<ptrdiff_t>(first());
    if (error && (is_first || text != *first_said)) std::rethrow_exception(error);
    throw SaidByAnotherRank();
  });
}

void Team::guarded(const std::function<void()> &body) {
  if (process_ == nullptr) {
    body();
    return;
  }
  try {
    body();
  } catch (const SaidByAnotherRank &) {
    throw;  // all ranks leave here
  } catch (...) {
    // Asked before this rank's own abort, which would be a failure, too.
    const bool is_lost = process_->has_failed();
    const std::string words = first_error(process_->host());
    process_->abort();
    if (!is_lost) throw;
    throw LostRank("ranks", "every rank to take part until the end", words,
                   "look for the first message of the other ranks; start all of them again, with "
                   "--resume where there is a checkpoint");
  }
}

uint32_t threads_per_rank(uint32_t threads, uint32_t ranks) {
  const uint32_t all = threads != 0 ? threads : std::thread::hardware_concurrency();
  return std::max<uint32_t>(all / ranks, 1);
}

}  // namespace octavo::standalone
