#pragma once

/// Graphs of operations for cuDNN, and the plans that execute them (cuDNN's backend interface).
/// Shows cuDNN's header: for .cc files of this folder alone.
///
/// A graph names its tensors by ids. Ids of real tensors are given to execute() with an address,
/// numbers passed by value with the address of the number on the host.

#include <cudnn.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/kernels/view.h"

namespace tessera::cuda {

/// Nothing for success. Else throws OutOfMemory or DeviceError with cuDNN's words; `where` is the
/// operation as the user calls it, `what` the call that failed.
void check_cudnn(cudnnStatus_t status, const char* where, const char* what);

/// The index of the current GPU.
int current_device(const char* where);

/// A new handle of the current GPU. Loads cuBLASLt before: some of cuDNN's engines want it by its
/// name, and which engines there are must not depend on whether a product was computed before.
cudnnHandle_t create_cudnn_handle(const char* where);

/// The calling thread's handle of the current GPU, set to `stream`. A thread that ends hands its
/// handles on to others; none is destroyed, since the CUDA runtime may end before they could be.
cudnnHandle_t cudnn_handle(CudaStream stream, const char* where);

cudnnDataType_t cudnn_dtype(DType dtype);

/// One descriptor of the backend.
class CudnnDescriptor {
 public:
  CudnnDescriptor(cudnnBackendDescriptorType_t type, const char* where);

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values);
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  void set(cudnnBackendAttributeName_t name, std::int64_t value);
  void set(cudnnBackendAttributeName_t name, bool value);
  void set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values);
  /// At most `room` elements of an attribute; returns how many it was given.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t room, void* values) const;
  /// The descriptors that an attribute holds, at most so many. cuDNN does not tell of every
  /// attribute how many there are before they are asked for.
  std::vector<CudnnDescriptor> held(cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptorType_t type, std::int64_t most) const;
  void finalize();
  /// The same where cuDNN may refuse: false then.
  bool try_finalize();
  /// The same of a plan, which may fail to be compiled while another one works: false for
  /// everything but OutOfMemory.
  bool try_build();

 private:
  struct Destroy {
    void operator()(void* descriptor) const;
  };
  std::unique_ptr<void, Destroy> descriptor_;
  const char* where_;
};

/// What a plan is made for: the GPU of a handle, or one that is described (as cuDNN's JSON text)
/// and need not be there; the latter kind cannot execute.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::string properties;
};

/// Which implementations are allowed besides those that always compute the same bits.
struct CudnnNumerics {
  bool tensor_cores = true;  ///< and operands that are rounded for them
  bool exact_sums = false;   ///< none that trades digits for products: FFT and large Winograd tiles
};

/// A finalized graph with all that it refers to.
struct CudnnOperations;

/// Executes one graph. Any thread: executions of one plan follow each other.
class CudnnPlan {
 public:
  using Binding = std::pair<std::int64_t, const void*>;

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// cuDNN's engine and the choices for its knobs, as "engine 8, knob 24=1": what tells the plans
  /// of one graph apart.
  std::string name() const;
  /// The operands of any number of executions. `scratch` has workspace_bytes() bytes; it and
  /// numbers that are passed by value are read by each execution.
  CudnnDescriptor bind(std::span<const Binding> bindings, void* scratch) const;
  void execute(cudnnHandle_t handle, const CudnnDescriptor& bound);

 private:
  friend class CudnnGraph;
  using Operations = std::shared_ptr<const CudnnOperations>;
  CudnnPlan(Operations operations, CudnnDescriptor config, CudnnDescriptor plan, const char* where);
  // Null where cuDNN fails to build it.
  static std::unique_ptr<CudnnPlan> build(Operations operations, CudnnDescriptor config,
                                          const char* where);

  Operations operations_;
  CudnnDescriptor config_, plan_;
  const char* where_;
  std::size_t workspace_bytes_ = 0;
  std::mutex executing_;
};

enum class CudnnTensorKind { kReal, kVirtual, kNumber };

struct CudnnTensor {
  cudnnDataType_t dtype = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  ///< empty: contiguous
  CudnnTensorKind kind = CudnnTensorKind::kVirtual;
  std::int64_t alignment = 16;  ///< bytes, of the address
};

enum class CudnnConvKind { kForward, kBackwardInput, kBackwardWeight };

class CudnnGraph {
 public:
  using Id = std::int64_t;
  /// `where` stands in errors: the operation's name, which lives on.
  explicit CudnnGraph(const char* where) : where_(where) {}

  Id tensor(const CudnnTensor& t);
  Id number(cudnnDataType_t dtype, int dims);

  void matmul(Id a, Id b, Id c);
  struct Pointwise {
    Id x = -1, b = -1, t = -1;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    std::int64_t axis = -1;  ///< of an index
  };
  void pointwise(cudnnPointwiseMode_t mode, const Pointwise& in, Id y);
  void reduce(cudnnReduceTensorOp_t op, Id x, Id y);
  void reshape(Id x, Id y);
  struct Convolution {
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    std::int64_t padding[2] = {}, stride[2] = {}, dilation[2] = {};
    double beta = 0;
  };
  /// x, w and y are the input, the weight and the output, or their gradients.
  void convolution(CudnnConvKind kind, const Convolution& c, Id x, Id w, Id y);

  /// The first plan in the order of cuDNN's heuristics that keeps to `numerics` and of which cuDNN
  /// does not note that it computes other bits each time (for attention it never does: see there);
  /// nothing where cuDNN has none. Leaves the graph empty.
  std::unique_ptr<CudnnPlan> plan(const CudnnTarget& target, const CudnnNumerics& numerics);
  /// Every plan that some mode of the heuristics offers and that can be built, whatever its
  /// numerics, each once: first those among which plan() chooses, in the same order. For
  /// benchmarks: building each may take part of a second. Leaves the graph empty.
  std::vector<std::unique_ptr<CudnnPlan>> offered_plans(const CudnnTarget& target);

 private:
  CudnnDescriptor& add(cudnnBackendDescriptorType_t type);
  void add_operation(CudnnDescriptor operation);
  // Null where cuDNN refuses the graph. Empties this one.
  std::shared_ptr<const CudnnOperations> finish(const CudnnTarget& target);

  const char* where_;
  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> parts_;  // descriptors that operations refer to
  std::vector<CudnnDescriptor> operations_;
};

}  // namespace tessera::cuda
