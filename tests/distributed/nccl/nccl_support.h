// Ranks as threads of this process, each with a GPU of its own and connected by NCCL.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/launch/rank_runner.h"
#include "tessera/distributed/nccl/process_group_nccl.h"
#include "tessera/distributed/store/store.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tensor/rank_context.h"

namespace tessera::testing {

using NcclGroupPtr = std::shared_ptr<distributed::ProcessGroup>;

struct NcclRun {
  int size = 2;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  distributed::NcclSettings settings{};
};

// Runs `body` as every rank; returns each rank's exception (null: none). When the body has ended,
// in any way, the rank's streams are waited for and its group is destroyed.
inline std::vector<std::exception_ptr> run_nccl(
    const NcclRun& run, const std::function<void(const NcclGroupPtr&)>& body) {
  const auto store = std::make_shared<distributed::MemoryStore>();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(run.size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < run.size; ++rank) {
    threads.emplace_back([&, rank] {
      const RankScope scope(std::make_shared<RankContext>(rank, run.size, 1));
      try {
        const NcclGroupPtr group = distributed::make_nccl_group("g", {.rank = rank,
                                                                      .size = run.size,
                                                                      .store = store,
                                                                      .device = rank,
                                                                      .timeout = run.timeout,
                                                                      .settings = run.settings});
        body(group);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline std::string text_of(const std::exception_ptr& error) {
  return error ? distributed::describe_failure(-1, error).text : "";
}

template <class E>
bool is_a(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}

inline Device gpu_of(const distributed::ProcessGroup& group) {
  return {DeviceType::kCuda, group.ranks()[static_cast<std::size_t>(group.rank())]};
}

// `count` elements of the rank's GPU, all of this value.
inline Tensor on_gpu(const distributed::ProcessGroup& group, std::int64_t count, double value,
                     DType dtype = DType::kF32) {
  return full({count}, value, {.dtype = dtype, .device = gpu_of(group)});
}

inline std::vector<float> host(const Tensor& x) { return x.to_vector<float>(); }

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace tessera::testing
