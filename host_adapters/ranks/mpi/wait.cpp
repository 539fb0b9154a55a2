/* Waiting for MPI without waiting in it, and the first failure: kept, reported to the host, told to
 * the other ranks, and what every later call answers. */
#include <sched.h>
#include <time.h>

#include <cstdarg>
#include <cstdio>

#include "host_adapters/ranks/mpi/communicator.h"

namespace octavo::mpi {
namespace {

using namespace std::chrono_literals;

constexpr int kAbortTag = 1; /* all else that is sent belongs to collectives */
constexpr auto kLook = 20ms;
/* A process that ends has sent what it owed before; what is on its way arrives within this. */
constexpr auto kGrace = 30ms;
constexpr auto kTelling = 200ms;

/* Other ranks may share this core: the first polls give way to them, later ones sleep. */
void pause(uint64_t polls) {
  if (polls < 2000) {
    sched_yield();
    return;
  }
  const timespec nap = {0, polls < 20000 ? 20'000 : 500'000};
  nanosleep(&nap, nullptr);
}

}  // namespace

octavo_status Communicator::wait(const char *verb, uint64_t bytes, Clock::time_point began,
                                 int code, MPI_Request *request) {
  if (code != MPI_SUCCESS) return fail_mpi(verb, code);
  for (uint64_t polls = 0;; ++polls) {
    int is_done = 0;
    {
      const std::lock_guard lock(mutex_);
      if (has_failed()) break;
      code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    }
    if (code != MPI_SUCCESS) return fail_mpi(verb, code);
    if (is_done != 0) return OCTAVO_OK;
    if (Clock::now() - looked_ > kLook) {
      looked_ = Clock::now();
      const octavo_status status = look_around(verb, bytes, began);
      if (status != OCTAVO_OK) return status;
    }
    pause(polls);
  }
  return refuse_after_failure(verb);
}

octavo_status Communicator::look_around(const char *verb, uint64_t bytes, Clock::time_point began) {
  const Clock::time_point now = Clock::now();
  const octavo_status told = comm_ == MPI_COMM_NULL ? OCTAVO_OK : find_abort(verb);
  if (told != OCTAVO_OK) return told;
  if (const int64_t lost = peers_.lost(); lost >= 0) {
    if (peer_lost_ == Clock::time_point()) peer_lost_ = now;
    if (now - peer_lost_ > kGrace)
      return fail(
          "%s: rank %u of %u: expected rank %u to take part, found its process %d ended; "
          "start all ranks again, from the last checkpoint",
          verb, rank_, world_, static_cast<unsigned>(lost),
          peers_.process_of(static_cast<uint32_t>(lost)));
  }
  if (now - began > deadline_)
    return fail(
        "%s of %llu bytes: rank %u of %u: expected an end within %lld ms, found it pending: "
        "another rank is gone, or its calls differ from this rank's; start all ranks again, "
        "or raise the deadline where a rank may need longer",
        verb, static_cast<unsigned long long>(bytes), rank_, world_,
        static_cast<long long>(deadline_.count()));
  return OCTAVO_OK;
}

octavo_status Communicator::find_abort(const char *verb) {
  int is_there = 0;
  MPI_Status from;
  int code = MPI_SUCCESS;
  {
    const std::lock_guard lock(mutex_);
    code = MPI_Iprobe(MPI_ANY_SOURCE, kAbortTag, comm_, &is_there, &from);
  }
  if (code != MPI_SUCCESS) return fail_mpi(verb, code);
  if (is_there == 0) return OCTAVO_OK;
  was_told_ = true;
  return fail(
      "%s: rank %u of %u: given up, since rank %d has failed or called octavo_mpi_abort; its "
      "own message has the cause",
      verb, rank_, world_, from.MPI_SOURCE);
}

void Communicator::keep_failure(const char *text) {
  const std::lock_guard lock(failure_mutex_);
  if (!has_failed()) failure_ = text;
  failed_.store(true, std::memory_order_release);
}

octavo_status Communicator::fail(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  const bool is_first = !has_failed();
  keep_failure(text);
  if (is_first) report_error(caller_, OCTAVO_FAILED_DEVICE, "%s", text);
  const std::lock_guard lock(mutex_);
  if (is_first && !was_told_) tell_others();
  return OCTAVO_FAILED_DEVICE;
}

octavo_status Communicator::fail_mpi(const char *verb, int code) {
  char text[MPI_MAX_ERROR_STRING] = "no text";
  int size = 0;
  MPI_Error_string(code, text, &size);
  return fail(
      "%s: rank %u of %u: MPI answered %d: %s; start all ranks again, from the last "
      "checkpoint",
      verb, rank_, world_, code, text);
}

octavo_status Communicator::refuse_after_failure(const char *verb) {
  std::string first;
  {
    const std::lock_guard lock(failure_mutex_);
    first = failure_;
  }
  return report_error(
      caller_, OCTAVO_FAILED_DEVICE,
      "%s: not carried out, since the communicator of rank %u of %u has failed (%s); "
      "start all ranks again",
      verb, rank_, world_, first.c_str());
}

/* A few bytes to each of them, which MPI sends at once; one that is gone is not waited for. */
void Communicator::tell_others() {
  if (comm_ == MPI_COMM_NULL || world_ == 1) return;
  std::vector<MPI_Request> sent(world_, MPI_REQUEST_NULL);
  static const char kNothing = 0; /* outlives requests that never end */
  const Clock::time_point began = Clock::now();
  for (uint32_t r = 0; r < world_; ++r)
    if (r != rank_)
      MPI_Isend(&kNothing, 1, MPI_BYTE, static_cast<int>(r), kAbortTag, comm_, &sent[r]);
  for (int is_done = 0; is_done == 0 && Clock::now() - began < kTelling; sched_yield())
    MPI_Testall(static_cast<int>(world_), sent.data(), &is_done, MPI_STATUSES_IGNORE);
}

octavo_status Communicator::check() {
  return has_failed() ? refuse_after_failure("octavo_mpi_check") : OCTAVO_OK;
}

void Communicator::abort() {
  const std::lock_guard lock(mutex_);
  if (has_failed()) return;
  keep_failure("the host called octavo_mpi_abort");
  tell_others();
}

}  // namespace octavo::mpi
