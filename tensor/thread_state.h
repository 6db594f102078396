#pragma once

/// The ambient state of a thread: what operations depend on besides their arguments.
///
/// Scopes set one field each and restore it at their end: RankScope, NamedScope,
/// MemoryCategoryScope, DefaultDeviceScope, random::StepScope, GradModeGuard, AnomalyGuard,
/// AutocastGuard, fsdp::WrapDefaults.
///
/// ThreadSettings are the plain values among the fields. Work that runs a second time (recompute)
/// saves and restores them as a whole, so that a setting that is added here is not forgotten there.
/// A queued stream runs a closure on a thread of its own, with the RankContext of the thread that
/// issued it and no other field: a closure allocates no memory, records no graph and draws no
/// random numbers.
///
/// Some fields belong to other code layers. They are plain data here, so that tensor depends on no
/// layer above it.

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "tessera/tensor/device.h"
#include "tessera/tensor/dtype.h"
#include "tessera/tensor/memory_category.h"

namespace tessera {

class RankContext;
class ScopeName;

namespace fsdp {
struct FullyShardOptions;
}  // namespace fsdp

namespace cuda {
class Capture;
}  // namespace cuda

namespace detail {

class BackwardPass;
class RecordingProbe;

/// What decides how an operation computes, by value.
struct ThreadSettings {
  /// Where tensors are created that name no device; empty: the process's default.
  std::optional<Device> default_device = {};
  /// What new storages count as.
  MemoryCategory memory_category = MemoryCategory::kActivation;
  /// Whether operations record a graph.
  bool grad_enabled = true;
  /// Whether results are checked for NaN and Inf.
  bool anomaly_mode = false;
  /// The lower dtype of autocast; empty: autocast is off.
  std::optional<DType> autocast = {};
};

/// One per thread. Trivially destructible, so it can be read while a thread ends. Pointers are not
/// owned: the scope that sets one keeps its object.
struct ThreadState {
  ThreadSettings settings;
  /// The context of the innermost RankScope; null outside of all: the process's context.
  const std::shared_ptr<RankContext>* rank_context = nullptr;
  /// The module whose forward runs; null outside of modules.
  const ScopeName* scope = nullptr;
  /// The thread of a queued stream.
  bool is_stream_worker = false;
  /// In a random::RestoreScope or StepScope manual_seed() does not change what this thread draws.
  bool has_fixed_random = false;
  /// Why this thread must not draw random numbers; null: it may.
  const char* no_draws = nullptr;
  /// The CUDA graph capture that this thread has begun, or null.
  cuda::Capture* capture = nullptr;
  /// Collects the variables that a function uses while no graph is recorded, or null.
  RecordingProbe* probe = nullptr;
  /// The innermost backward pass that runs on this thread, or null.
  BackwardPass* backward_pass = nullptr;
  /// The options of the open fsdp::WrapDefaults, or null.
  const fsdp::FullyShardOptions* wrap_defaults = nullptr;
};
static_assert(std::is_trivially_destructible_v<ThreadState>);

extern constinit thread_local ThreadState t_thread_state;

/// The calling thread's state.
inline ThreadState& thread_state() { return t_thread_state; }

/// Sets all settings of the calling thread until the end of the scope.
class ThreadSettingsScope {
 public:
  explicit ThreadSettingsScope(const ThreadSettings& settings)
      : previous_(std::exchange(thread_state().settings, settings)) {}
  ~ThreadSettingsScope() { thread_state().settings = previous_; }
  ThreadSettingsScope(const ThreadSettingsScope&) = delete;
  ThreadSettingsScope& operator=(const ThreadSettingsScope&) = delete;

 private:
  ThreadSettings previous_;
};

}  // namespace detail
}  // namespace tessera
