#pragma once

/// Graphs of operations for cuDNN, and the plans that execute them (cuDNN's backend API). Includes
/// cuDNN's header: only for .cc files of this folder.
///
/// A graph names its tensors by ids. execute() binds an id to an address: a GPU address for a
/// tensor, a host address for a number passed by value.

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

/// Returns for success. Else throws OutOfMemory or DeviceError with cuDNN's text; `where` is the
/// operation under the name that the user calls, `what` the call that failed.
void check_cudnn(cudnnStatus_t status, const char* where, const char* what);

/// The index of the current GPU.
int current_device(const char* where);

/// A new handle of the current GPU. Loads cuBLASLt first: some of cuDNN's engines look it up by
/// name, and the set of engines must not depend on whether a product was computed before.
cudnnHandle_t create_cudnn_handle(const char* where);

/// The calling thread's handle of the current GPU, set to `stream`. A thread that ends returns its
/// handles for reuse by others. Handles are never destroyed, because the CUDA runtime may be
/// unloaded first.
cudnnHandle_t cudnn_handle(CudaStream stream, const char* where);

cudnnDataType_t cudnn_dtype(DType dtype);

/// One descriptor of the backend API.
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
  /// Reads at most `room` elements of an attribute; returns the number read.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t room, void* values) const;
  /// The descriptors of an attribute, at most this many. For some attributes cuDNN does not report
  /// the number beforehand.
  std::vector<CudnnDescriptor> held(cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptorType_t type, std::int64_t most) const;
  void finalize();
  /// The same, but returns false if cuDNN refuses.
  bool try_finalize();
  /// The same for a plan. A plan may fail to compile while another one works: returns false for all
  /// errors but OutOfMemory.
  bool try_build();

 private:
  struct Destroy {
    void operator()(void* descriptor) const;
  };
  std::unique_ptr<void, Destroy> descriptor_;
  const char* where_;
};

/// The target of a plan: the GPU of a handle, or a described GPU (in cuDNN's JSON) that need not be
/// present; such a plan cannot execute.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::string properties;
};

/// Which implementations are allowed, in addition to the deterministic ones that are fully
/// accurate.
struct CudnnNumerics {
  bool tensor_cores = true;  ///< tensor cores, and operands rounded for them
  bool exact_sums = false;   ///< exclude FFT and large Winograd tiles, which lose accuracy
};

/// A finalized graph with everything that it refers to.
struct CudnnOperations;

/// Executes one graph. Thread-safe: executions of one plan are serialised.
class CudnnPlan {
 public:
  using Binding = std::pair<std::int64_t, const void*>;

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  /// cuDNN's engine and the values of its knobs, as "engine 8, knob 24=1". Identifies a plan among
  /// those of one graph.
  std::string name() const;
  /// The operands of any number of executions. `scratch` has workspace_bytes() bytes; each
  /// execution reads it and the numbers that are passed by value.
  CudnnDescriptor bind(std::span<const Binding> bindings, void* scratch) const;
  void execute(cudnnHandle_t handle, const CudnnDescriptor& bound);

 private:
  friend class CudnnGraph;
  using Operations = std::shared_ptr<const CudnnOperations>;
  CudnnPlan(Operations operations, CudnnDescriptor config, CudnnDescriptor plan, const char* where);
  // Null if cuDNN fails to build it.
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
  /// `where` is the operation's name, for errors; it must outlive the graph.
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

  /// The first plan, in the order of cuDNN's heuristics, that satisfies `numerics` and is not noted
  /// by cuDNN as nondeterministic (for attention cuDNN never notes this: see there). Null if there
  /// is none. Leaves the graph empty.
  std::unique_ptr<CudnnPlan> plan(const CudnnTarget& target, const CudnnNumerics& numerics);
  /// Every plan that a mode of the heuristics offers and that can be built, with any numerics, each
  /// once: first the plans among which plan() chooses, in the same order. For benchmarks: building
  /// a plan may take part of a second. Leaves the graph empty.
  std::vector<std::unique_ptr<CudnnPlan>> offered_plans(const CudnnTarget& target);

 private:
  CudnnDescriptor& add(cudnnBackendDescriptorType_t type);
  void add_operation(CudnnDescriptor operation);
  // Null if cuDNN refuses the graph. Empties this graph.
  std::shared_ptr<const CudnnOperations> finish(const CudnnTarget& target);

  const char* where_;
  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> parts_;  // descriptors that operations refer to
  std::vector<CudnnDescriptor> operations_;
};

}  // namespace tessera::cuda
