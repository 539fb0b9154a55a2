// Engine "nccl": a process that torchrun started, with a GPU of its own, on liboctavo_nccl.
#include <octavo_nccl.h>

#include <cstring>

#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/library.h"
#include "host_adapters/standalone/rendezvous.h"
#include "host_adapters/standalone/team.h"

namespace octavo::standalone {
namespace {

class NcclRank : public ProcessRank {
 public:
  explicit NcclRank(const Distributed &d)
      : place_(place_of_torchrun(d.origin)),
        library_(
            "octavo_nccl", "nccl", d.origin,
            "build Octavo with CUDA's toolkit (cmake --preset cuda), or choose engine = \"mpi\""),
        close_(library_.get<decltype(octavo_nccl_close)>("octavo_nccl_close")),
        abort_(library_.get<decltype(octavo_nccl_abort)>("octavo_nccl_abort")),
        check_(library_.get<decltype(octavo_nccl_check)>("octavo_nccl_check")) {
    const std::string engine = "distributed.engine = \"nccl\" (" + d.origin + ")";
    const std::string remedy = "follow the message above, on every rank";
    const Letter letter = letter_of_root(place_, make_id(), std::chrono::seconds(d.timeout_s));
    octavo_nccl_id id = {};
    expect(!letter.is_error && letter.text.size() == sizeof id, engine, "an id of NCCL from rank 0",
           letter.text, remedy);
    std::memcpy(&id, letter.text.data(), sizeof id);
    octavo_nccl_desc desc = {};
    desc.size = sizeof desc;
    desc.world = place_.world;
    desc.rank = place_.rank;
    desc.device = place_.local_rank;
    desc.id = &id;
    desc.host = host().get();
    desc.deadline_ms = static_cast<uint32_t>(d.timeout_s * 1000);
    const auto open = library_.get<decltype(octavo_nccl_open)>("octavo_nccl_open");
    const octavo_status status = open(&desc, &nccl_);
    expect(status == OCTAVO_OK, engine, "a communicator of NCCL among all ranks",
           said(host().take()), remedy);
    const auto values =
        library_.get<decltype(octavo_nccl_host_collective)>("octavo_nccl_host_collective");
    const auto tensors = library_.get<decltype(octavo_nccl_collective)>("octavo_nccl_collective");
    communicator_ = Communicator(octavo::Collective(values(nccl_), place_.rank), tensors(nccl_));
  }
  ~NcclRank() override { close_(nccl_); }

  Communicator communicator() const override { return communicator_; }
  bool has_failed() override { return check_(nccl_) != OCTAVO_OK; }
  void abort() noexcept override { abort_(nccl_); }
  int device_index() const override { return place_.local_rank; }

 private:
  // Of rank 0 alone; its error is every rank's.
  Letter make_id() {
    octavo_nccl_id id = {};
    if (place_.rank != 0) return {};
    const auto make = library_.get<decltype(octavo_nccl_get_id)>("octavo_nccl_get_id");
    if (make(host().get(), {}, &id) != OCTAVO_OK) return {true, said(host().take())};
    return {false, std::string(reinterpret_cast<const char *>(&id), sizeof id)};
  }

  const Place place_;
  const Library library_;
  decltype(&octavo_nccl_close) close_;
  decltype(&octavo_nccl_abort) abort_;
  decltype(&octavo_nccl_check) check_;
  octavo_nccl *nccl_ = nullptr;
  Communicator communicator_;
};

}  // namespace

std::unique_ptr<ProcessRank> open_nccl(const Distributed &distributed) {
  return std::make_unique<NcclRank>(distributed);
}

}  // namespace octavo::standalone
