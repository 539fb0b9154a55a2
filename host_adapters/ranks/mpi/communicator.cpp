/* Opening a communicator: MPI, a duplicate of the host's communicator, and who the others are. */
#include "host_adapters/ranks/mpi/communicator.h"

#include <unistd.h>

#include <cstdlib>

namespace octavo::mpi {
namespace {

constexpr uint64_t kScratchBytes = uint64_t{32} << 20;
constexpr uint32_t kDeadline = 10 * 60 * 1000; /* ms */
constexpr const char *kVerb = "octavo_mpi_open";

/* MPI would start a world of one by itself, with a launcher of its own. */
bool has_launcher() {
  for (const char *variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})
    if (std::getenv(variable) != nullptr) return true;
  return false;
}

const char *name_of_level(int level) {
  switch (level) {
    case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
    case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
    case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
    default: return "MPI_THREAD_MULTIPLE";
  }
}

}  // namespace

Communicator::Communicator(const octavo_mpi_desc &desc)
    : caller_{desc.host, "octavo.mpi"},
      deadline_(desc.deadline_ms == 0 ? kDeadline : desc.deadline_ms),
      scratch_bytes_(desc.scratch_bytes == 0 ? kScratchBytes : desc.scratch_bytes),
      process_(getpid()) {}

bool Communicator::is_inherited() const {
  return getpid() != process_;
}

octavo_status Communicator::open(const octavo_mpi_desc &desc) {
  octavo_status status = start_mpi();
  if (status == OCTAVO_OK)
    status = duplicate(desc.comm == nullptr ? MPI_COMM_WORLD
                                            : *static_cast<const MPI_Comm *>(desc.comm));
  return status == OCTAVO_OK ? introduce() : status;
}

octavo_status Communicator::start_mpi() {
  int is_initialized = 0, is_finalized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_finalized != 0)
    return report_error(caller_, OCTAVO_WRONG_STATE,
                        "%s: expected MPI before MPI_Finalize, found it finalized, after which it "
                        "cannot start again; open one communicator for the whole program",
                        kVerb);
  if (is_initialized == 0) {
    if (!has_launcher())
      return report_error(caller_, OCTAVO_WRONG_STATE,
                          "%s: expected a process that a launcher of MPI started, found none of "
                          "OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMI_RANK and PMI_SIZE in the "
                          "environment; start it as in: mpirun -n 4 PROGRAM",
                          kVerb);
    const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    if (code != MPI_SUCCESS) return fail_mpi(kVerb, code);
    finalizes_ = true;
  }
  MPI_Query_thread(&level);
  if (level >= MPI_THREAD_SERIALIZED) return OCTAVO_OK;
  return report_error(caller_, OCTAVO_UNSUPPORTED,
                      "%s: expected MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, found "
                      "%s; ask MPI_Init_thread for MPI_THREAD_MULTIPLE",
                      kVerb, name_of_level(level));
}

/* Errors of the host's communicator come back during this, then its own handler has it again. */
octavo_status Communicator::duplicate(MPI_Comm comm) {
  int is_inter = 0, size = 0, rank = 0;
  MPI_Errhandler own = MPI_ERRHANDLER_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  if (comm == MPI_COMM_NULL)
    return report_error(caller_, OCTAVO_INVALID,
                        "%s: comm: expected a communicator, found MPI_COMM_NULL", kVerb);
  MPI_Comm_get_errhandler(comm, &own);
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  MPI_Comm_test_inter(comm, &is_inter);
  MPI_Comm_size(comm, &size);
  MPI_Comm_rank(comm, &rank);
  octavo_status status = OCTAVO_OK;
  world_ = static_cast<uint32_t>(size);
  rank_ = static_cast<uint32_t>(rank);
  if (is_inter != 0 || world_ > kMostRanks)
    status =
        report_error(caller_, OCTAVO_INVALID,
                     "%s: comm: expected an intracommunicator of at most %u processes, found "
                     "%s of %u",
                     kVerb, kMostRanks, is_inter != 0 ? "an intercommunicator" : "one", world_);
  if (status == OCTAVO_OK) {
    MPI_Comm made = MPI_COMM_NULL; /* of no use until the request has ended */
    const int code = MPI_Comm_idup(comm, &made, &request);
    status = wait(kVerb, 0, Clock::now(), code, &request);
    if (status == OCTAVO_OK) comm_ = made;
  }
  MPI_Comm_set_errhandler(comm, own);
  if (own != MPI_ERRHANDLER_NULL) MPI_Errhandler_free(&own);
  if (status == OCTAVO_OK) MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  return status;
}

octavo_status Communicator::introduce() {
  asks_.resize(world_);
  scratch_.reset(new float[scratch_bytes_ / sizeof(float)]); /* no page of it is touched yet */
  std::vector<Introduction> all(world_);
  const Introduction own = {scratch_bytes_, this_process()};
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Iallgather(&own, sizeof(own), MPI_BYTE, all.data(), sizeof(own), MPI_BYTE,
                                  comm_, &request);
  const octavo_status status = wait(kVerb, 0, Clock::now(), code, &request);
  if (status != OCTAVO_OK) return status;
  std::vector<Process> processes;
  for (const Introduction &one : all) processes.push_back(one.process);
  for (uint32_t r = 0; r < world_; ++r)
    if (all[r].scratch_bytes != all[0].scratch_bytes)
      return report_error(
          caller_, OCTAVO_INVALID,
          "%s: expected equal scratch_bytes on every rank, found %llu on rank 0 and "
          "%llu on rank %u; give every rank the same",
          kVerb, static_cast<unsigned long long>(all[0].scratch_bytes),
          static_cast<unsigned long long>(all[r].scratch_bytes), r);
  peers_.watch(processes, rank_);
  return OCTAVO_OK;
}

/* After a failure nothing of MPI is called: its functions could wait for a rank that is gone. */
void Communicator::close() {
  if (comm_ != MPI_COMM_NULL && !has_failed()) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Ibarrier(comm_, &request);
    wait("octavo_mpi_close", 0, Clock::now(), code, &request);
  }
  peers_.forget();
  if (has_failed()) return;
  if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  if (finalizes_) MPI_Finalize();
}

}  // namespace octavo::mpi
