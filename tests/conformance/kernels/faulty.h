// Kernels of a fake device with one fault, for tests of `octavo plugin verify`.
//
// They are the CPU's; OCTAVO_KERNELS_FAULT names the fault, which replaces functions of the table.
// Without it they keep the contract.
#ifndef OCTAVO_TESTS_CONFORMANCE_KERNELS_FAULTY_H
#define OCTAVO_TESTS_CONFORMANCE_KERNELS_FAULTY_H

#include <span>

#include "octavo/kernels.h"
#include "octavo/memory.h"

namespace octavo::test {

struct Fault {
  const char *name;
  void (*plant)(octavo_kernels &kernels, octavo_memory &memory);
};

// The CPU's table, which faults call.
const octavo_kernels &sound();
bool has_fault(const char *name);

std::span<const Fault> faults_of_casts();
std::span<const Fault> faults_of_values();
std::span<const Fault> faults_of_fp4();
std::span<const Fault> faults_of_devices();
std::span<const Fault> faults_of_streams();
std::span<const Fault> faults_of_special();

// Work that waits until memory is copied or synchronized, the last moment that the contract allows.
void queue_work(octavo_kernels &kernels, octavo_memory &memory);

}  // namespace octavo::test

#endif
