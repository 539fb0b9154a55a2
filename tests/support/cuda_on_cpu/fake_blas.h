// A cuBLASLt that the CPU executes: what a test may script of it, and what it saw.
//
// The library (fake_blas.cpp) has the real one's file name and is opened by its path. It refuses
// what the manual says that the real one refuses, and computes in the order of octavo/kernels.h. It
// finds the runtime of the process by the environment (graph.h): products are work of its streams,
// handles and pointers belong to its devices.
#pragma once

#include <cublasLt.h>

#include <string>
#include <vector>

namespace fake_blas {

// One cublasLtMatmul, in cuBLASLt's words: its A is our b.
struct Call {
  uint64_t m, n, k;
  cudaDataType a_type, b_type, d_type;
  cublasOperation_t transa, transb;
  int32_t a_mode, b_mode;
  bool has_bias;
  bool is_fast;
  bool accumulates;
  int32_t sm_target;
  int algorithm;
  size_t workspace;
  cudaStream_t stream;
};

struct State {
  // The script.
  int capability = 0;                   // 0: the fake GPU's, see fake_gpu.h
  int algorithms = 3;                   // that the heuristics know
  size_t workspace = size_t{64} << 10;  // that each of them needs
  bool refuses_bias = false;            // no algorithm with that epilogue
  bool refuses_vectors = false;         // none with scales of rows
  cublasStatus_t create = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t describe = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t matmul = CUBLAS_STATUS_SUCCESS;
  bool (*is_device)(const void *data, size_t bytes) = nullptr;  // null: any address
  void (*on_matmul)(int algorithm) = nullptr;

  // What happened.
  int handles = 0;  // that live
  int objects = 0;  // descriptors, layouts and preferences that live
  int objects_made = 0;
  int heuristics = 0;  // questions
  std::vector<Call> calls;
  std::string refusal;  // why the last refused call was refused
};

}  // namespace fake_blas

// The library's one State; found by dlsym.
extern "C" fake_blas::State *fake_blas_state();
