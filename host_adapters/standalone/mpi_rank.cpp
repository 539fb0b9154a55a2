// Engine "mpi": a process that mpirun started, on liboctavo_mpi.
#include <octavo_mpi.h>

#include "host_adapters/standalone/error.h"
#include "host_adapters/standalone/library.h"
#include "host_adapters/standalone/team.h"

namespace octavo::standalone {
namespace {

class MpiRank : public ProcessRank {
 public:
  explicit MpiRank(const Distributed &d)
      : library_(
            "octavo_mpi", "mpi", d.origin,
            "build Octavo where an MPI for C is (apt-get install libopenmpi-dev openmpi-bin), or "
            "choose engine = \"threads\""),
        close_(library_.get<decltype(octavo_mpi_close)>("octavo_mpi_close")),
        abort_(library_.get<decltype(octavo_mpi_abort)>("octavo_mpi_abort")),
        check_(library_.get<decltype(octavo_mpi_check)>("octavo_mpi_check")) {
    const auto open = library_.get<decltype(octavo_mpi_open)>("octavo_mpi_open");
    const auto rank = library_.get<decltype(octavo_mpi_rank)>("octavo_mpi_rank");
    const auto table = library_.get<decltype(octavo_mpi_collective)>("octavo_mpi_collective");
    octavo_mpi_desc desc = {};
    desc.size = sizeof desc;
    desc.host = host().get();
    desc.deadline_ms = static_cast<uint32_t>(d.timeout_s * 1000);
    const octavo_status status = open(&desc, &mpi_);
    expect(status == OCTAVO_OK, "distributed.engine = \"mpi\" (" + d.origin + ")",
           "a process of mpirun that reaches all the others", said(host().take()),
           "start it as in: mpirun -n 4 train_gpt ..., or choose engine = \"threads\"");
    communicator_ = Communicator(octavo::Collective(table(mpi_), rank(mpi_)));
  }
  ~MpiRank() override { close_(mpi_); }

  Communicator communicator() const override { return communicator_; }
  bool has_failed() override { return check_(mpi_) != OCTAVO_OK; }
  void abort() noexcept override { abort_(mpi_); }

 private:
  const Library library_;
  decltype(&octavo_mpi_close) close_;
  decltype(&octavo_mpi_abort) abort_;
  decltype(&octavo_mpi_check) check_;
  octavo_mpi *mpi_ = nullptr;
  Communicator communicator_;
};

}  // namespace

std::unique_ptr<ProcessRank> open_mpi(const Distributed &distributed) {
  return std::make_unique<MpiRank>(distributed);
}

}  // namespace octavo::standalone
