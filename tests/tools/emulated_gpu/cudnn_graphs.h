// Operation graphs of cuDNN's backend as tests write them: tensors with numbers in device memory,
// operations on them, and the first plan that some engine makes.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "tessera/tensor/half.h"

namespace tessera::testing {

// A descriptor that is finalized by finalize() and destroyed with its owner.
class Backend {
 public:
  explicit Backend(cudnnBackendDescriptorType_t type) {
    REQUIRE(cudnnBackendCreateDescriptor(type, &handle_) == CUDNN_STATUS_SUCCESS);
  }
  ~Backend() { cudnnBackendDestroyDescriptor(handle_); }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  template <class T>
  cudnnStatus_t try_set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        const std::vector<T>& values) {
    return cudnnBackendSetAttribute(handle_, name, type, static_cast<std::int64_t>(values.size()),
                                    values.data());
  }
  template <class T>
  Backend& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               const std::vector<T>& values) {
    REQUIRE(try_set(name, type, values) == CUDNN_STATUS_SUCCESS);
    return *this;
  }
  Backend& set(cudnnBackendAttributeName_t name, const Backend& held) {
    return set<void*>(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, {held.handle_});
  }
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(handle_); }
  Backend& finalize() {
    REQUIRE(try_finalize() == CUDNN_STATUS_SUCCESS);
    return *this;
  }
  cudnnBackendDescriptor_t handle() const { return handle_; }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

using Dims = std::vector<std::int64_t>;

inline Dims packed(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (std::size_t i = dims.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
  return strides;
}

struct TensorWish {
  Dims dims;
  Dims strides = {};  // packed
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  bool is_virtual = false, by_value = false;
};

// A graph under construction. Tensors are named by their id.
class GraphMaker {
 public:
  GraphMaker() { REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS); }
  ~GraphMaker() {
    cudnnDestroy(handle);
    for (auto& [id, at] : memory) cudaFree(at);
  }
  GraphMaker(const GraphMaker&) = delete;
  GraphMaker& operator=(const GraphMaker&) = delete;

  std::int64_t tensor(const TensorWish& wish) {
    const auto id = static_cast<std::int64_t>(tensors.size()) + 1;
    auto made = std::make_unique<Backend>(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    made->set<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {wish.type})
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, wish.dims)
        .set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
             wish.strides.empty() ? packed(wish.dims) : wish.strides)
        .set<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {id})
        .set<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
                           {wish.by_value ? 4 : 16})
        .set<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, {wish.is_virtual})
        .set<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, {wish.by_value})
        .finalize();
    tensors.push_back(std::move(made));
    return id;
  }
  std::int64_t virtual_tensor(const Dims& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT) {
    return tensor({.dims = dims, .type = type, .is_virtual = true});
  }
  // A tensor with these numbers in memory, in the order of its memory.
  template <class T = float>
  std::int64_t input(const TensorWish& wish, const std::vector<T>& values) {
    const std::int64_t id = tensor(wish);
    REQUIRE(cudaMalloc(&memory[id], values.size() * sizeof(T)) == cudaSuccess);
    REQUIRE(cudaMemcpy(memory[id], values.data(), values.size() * sizeof(T),
                       cudaMemcpyHostToDevice) == cudaSuccess);
    return id;
  }
  std::vector<float> read(std::int64_t id, std::size_t count) const {
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    std::vector<float> values(count);
    REQUIRE(cudaMemcpy(values.data(), memory.at(id), count * sizeof(float),
                       cudaMemcpyDeviceToHost) == cudaSuccess);
    return values;
  }

  Backend& of(std::int64_t id) { return *tensors[static_cast<std::size_t>(id) - 1]; }
  Backend& own(std::unique_ptr<Backend> made) {
    parts.push_back(std::move(made));
    return *parts.back();
  }
  Backend& operation(cudnnBackendDescriptorType_t type) {
    operations.push_back(std::make_unique<Backend>(type));
    return *operations.back();
  }

  void matmul(std::int64_t a, std::int64_t b, std::int64_t c) {
    auto& how = own(std::make_unique<Backend>(CUDNN_BACKEND_MATMUL_DESCRIPTOR));
    how.set<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, {CUDNN_DATA_FLOAT})
        .finalize();
    operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, of(a))
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, of(b))
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, of(c))
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, how)
        .finalize();
  }
  // Inputs x, b, t, as many as the mode has.
  void pointwise(cudnnPointwiseMode_t mode, const std::vector<std::int64_t>& inputs, std::int64_t y,
                 std::int64_t axis = 0) {
    auto& how = own(std::make_unique<Backend>(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    how.set<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, {mode})
        .set<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
                              {CUDNN_DATA_FLOAT})
        .set<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, {axis})
        .finalize();
    auto& made = operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, of(y));
    constexpr cudnnBackendAttributeName_t kNames[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                      CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (std::size_t i = 0; i < inputs.size(); ++i) made.set(kNames[i], of(inputs[i]));
    made.finalize();
  }
  void reduce(cudnnReduceTensorOp_t op, std::int64_t x, std::int64_t y) {
    auto& how = own(std::make_unique<Backend>(CUDNN_BACKEND_REDUCTION_DESCRIPTOR));
    how.set<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR,
                                   CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, {op})
        .set<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
                              {CUDNN_DATA_FLOAT})
        .finalize();
    operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, of(x))
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, of(y))
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, how)
        .finalize();
  }

  // The finalized graph of the operations so far.
  Backend& graph() {
    std::vector<void*> handles;
    for (const auto& one : operations) handles.push_back(one->handle());
    auto& made = own(std::make_unique<Backend>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    return made.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles)
        .finalize();
  }
  // A finalized plan of one engine of it.
  Backend& plan(std::int64_t engine) {
    Backend& from = graph();
    auto& chosen = own(std::make_unique<Backend>(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    chosen.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, from)
        .set<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, {engine})
        .finalize();
    auto& config = own(std::make_unique<Backend>(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    config.set(CUDNN_ATTR_ENGINECFG_ENGINE, chosen).finalize();
    auto& made = own(std::make_unique<Backend>(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    return made.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).finalize();
  }
  cudnnStatus_t execute(Backend& plan, const std::map<std::int64_t, void*>& places,
                        void* workspace = nullptr) {
    std::vector<std::int64_t> ids;
    std::vector<void*> pointers;
    for (const auto& [id, at] : places) ids.push_back(id), pointers.push_back(at);
    Backend pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers)
        .set<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace})
        .finalize();
    return cudnnBackendExecute(handle, plan.handle(), pack.handle());
  }
  // Runs the operations with the engine that keeps f32, and a workspace for it.
  void run() {
    constexpr std::int64_t kPlain = 3;
    Backend& made = plan(kPlain);
    std::int64_t bytes = 0;
    REQUIRE(cudnnBackendGetAttribute(made.handle(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, nullptr, &bytes) == CUDNN_STATUS_SUCCESS);
    void* workspace = nullptr;
    REQUIRE(cudaMalloc(&workspace, static_cast<std::size_t>(bytes)) == cudaSuccess);
    std::map<std::int64_t, void*> places = memory;
    places.insert(on_host.begin(), on_host.end());
    REQUIRE(execute(made, places, workspace) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudaFree(workspace) == cudaSuccess);
  }

  cudnnHandle_t handle = nullptr;
  std::map<std::int64_t, void*> memory, on_host;
  std::vector<std::unique_ptr<Backend>> tensors, operations, parts;
};

// 0.25, 0.5, -0.75, ...: exact in every type.
inline std::vector<float> some_numbers(std::size_t count, unsigned seed = 1) {
  std::vector<float> values(count);
  for (float& x : values) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int>(seed >> 28) - 8) / 4;
  }
  return values;
}

}  // namespace tessera::testing
