// Handles of the emulated cuDNN, and the execution of plans on their streams.

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <mutex>
#include <set>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_engines.h"
#include "tessera/tests/support/emulated_gpu/runtime/runtime.h"
#include "tessera/tests/support/emulated_gpu/vendor_memory.h"

namespace tessera::emulated::cudnn {
namespace {

struct Handle {
  int device = 0;
  cudaStream_t stream = nullptr;
};
struct Handles {
  std::mutex mutex;
  std::set<Handle*> live;
};
Handles& handles() {
  static Handles all;
  return all;
}

Handle* find_handle(cudnnHandle_t handle) {
  auto* inside = reinterpret_cast<Handle*>(handle);
  const std::lock_guard lock(handles().mutex);
  return handles().live.contains(inside) ? inside : nullptr;
}

Refused check_place(const Tensor& t, const void* at) {
  if (at == nullptr) {
    return {CUDNN_STATUS_BAD_PARAM_NULL_POINTER, fmt::format("tensor {} has no pointer", t.id)};
  }
  if (reinterpret_cast<std::uintptr_t>(at) % static_cast<std::uintptr_t>(t.alignment) != 0) {
    return {CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
            fmt::format("tensor {} at {} was said to be a multiple of {}", t.id, at, t.alignment)};
  }
  if (t.by_value || is_device_memory(at, t.bytes())) return {};
  return {CUDNN_STATUS_EXECUTION_FAILED,
          fmt::format("tensor {}: {} bytes at {} are no memory of the GPU", t.id, t.bytes(), at)};
}

Refused place_tensors(const Graph& graph, const Descriptor& pack, Execution& to) {
  const auto ids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<char*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<std::int64_t, char*> given;
  for (std::size_t i = 0; i < ids.size(); ++i) given[ids[i]] = pointers[i];
  for (const auto& [id, tensor] : graph.tensors) {
    if (tensor.is_virtual) continue;
    char* at = given.contains(id) ? given[id] : nullptr;
    if (Refused r = check_place(tensor, at); !r.ok()) return r;
    if (tensor.by_value) {
      to.by_value[id].assign(at, at + tensor.bytes());
    } else {
      to.places[id] = at;
    }
  }
  return {};
}

Refused place_workspace(const Plan& plan, const Descriptor& pack, Execution& to) {
  to.workspace = pack.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  if (plan.workspace == 0) return {};
  if (to.workspace == nullptr || !is_device_memory(to.workspace, plan.workspace)) {
    return {CUDNN_STATUS_BAD_PARAM,
            fmt::format("the plan needs {} bytes of workspace, there are none at {}",
                        plan.workspace, to.workspace)};
  }
  if (reinterpret_cast<std::uintptr_t>(to.workspace) % 16 == 0) return {};
  return {CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
          fmt::format("the workspace at {} is no multiple of 16", to.workspace)};
}

Refused execute(const Handle* handle, const DescriptorPointer& plan,
                const DescriptorPointer& pack) {
  if (handle == nullptr) return {CUDNN_STATUS_NOT_INITIALIZED, "this is no live cuDNN handle"};
  if (plan == nullptr || pack == nullptr || plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
      pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
    return {CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a plan and a variant pack are needed"};
  }
  if (!plan->finalized || !pack->finalized) {
    return {CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalized"};
  }
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess || device != handle->device) {
    return {CUDNN_STATUS_BAD_PARAM,
            fmt::format("the handle is of GPU {}, the current one is {}", handle->device, device)};
  }
  Execution execution;
  execution.plan = plan->plan;
  if (Refused r = place_tensors(*plan->plan->graph, *pack, execution); !r.ok()) return r;
  if (Refused r = place_workspace(*plan->plan, *pack, execution); !r.ok()) return r;
  const cudaError_t error = issue_work(handle->stream, [execution] { run(execution); });
  if (error == cudaSuccess) return {};
  return {CUDNN_STATUS_EXECUTION_FAILED_CUDART, cudaGetErrorName(error)};
}

}  // namespace
}  // namespace tessera::emulated::cudnn

using namespace tessera::emulated::cudnn;  // NOLINT: what follows is the API itself

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) {
    return refuse(__func__, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no place given");
  }
  int device = -1;
  if (cudaGetDevice(&device) != cudaSuccess) {
    return refuse(__func__, CUDNN_STATUS_NOT_INITIALIZED, "there is no GPU");
  }
  auto* made = new Handle{device, nullptr};
  const std::lock_guard lock(handles().mutex);
  handles().live.insert(made);
  *handle = reinterpret_cast<cudnnHandle_t>(made);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  auto* inside = reinterpret_cast<Handle*>(handle);
  {
    const std::lock_guard lock(handles().mutex);
    if (handles().live.erase(inside) == 0) {
      return refuse(__func__, CUDNN_STATUS_NOT_INITIALIZED, "this is no live cuDNN handle");
    }
  }
  delete inside;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  Handle* found = find_handle(handle);
  if (found == nullptr) {
    return refuse(__func__, CUDNN_STATUS_NOT_INITIALIZED, "this is no live cuDNN handle");
  }
  int device = found->device;
  if (stream != nullptr &&
      (cudaStreamGetDevice(stream, &device) != cudaSuccess || device != found->device)) {
    return refuse(__func__, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
                  fmt::format("the handle is of GPU {}, the stream of {}", found->device, device));
  }
  found->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Refused refused = execute(find_handle(handle), find(plan), find(pack));
  return refused.ok() ? refused.status : refuse(__func__, refused.status, refused.why);
}

}  // extern "C"
