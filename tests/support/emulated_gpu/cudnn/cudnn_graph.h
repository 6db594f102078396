#pragma once

/// A finalized operation graph of the emulated cuDNN: tensors by unique id, and operations in an
/// order in which each reads what others have written before.

#include <cudnn.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_descriptor.h"

namespace tessera::emulated::cudnn {

/// A status that is not success, and why.
struct Refused {
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  std::string why;
  bool ok() const { return status == CUDNN_STATUS_SUCCESS; }
};

struct Tensor {
  std::int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> dims, strides;  // elements
  std::int64_t alignment = 1;               // bytes
  bool is_virtual = false, by_value = false;

  std::int64_t numel() const;
  /// From the first element to the end of the last.
  std::int64_t extent() const;
  std::size_t bytes() const;
};
/// Bytes of an element; 0 for types that are not emulated.
std::size_t size_of(cudnnDataType_t type);
Tensor tensor_of(const Descriptor& descriptor);

enum class Role { kX, kB, kT, kY };  // inputs, then the output

struct Operation {
  DescriptorPointer descriptor;
  std::map<Role, std::int64_t> tensors;  // ids
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;

  cudnnBackendDescriptorType_t type() const { return descriptor->type; }
  std::int64_t output() const { return tensors.at(Role::kY); }
};
/// An operation's tensors, by what it does with them.
std::map<Role, DescriptorPointer> tensors_of(const Descriptor& operation);

struct Graph {
  std::map<std::int64_t, Tensor> tensors;
  std::vector<Operation> operations;

  const Tensor& of(const Operation& operation, Role role) const {
    return tensors.at(operation.tensors.at(role));
  }
  /// Whether every input in memory is of 16 bits, or any of 64.
  bool is_half() const;
  bool is_double() const;
};

/// The graph of finalized operations; why not, where they are none.
struct MadeGraph {
  std::shared_ptr<Graph> graph;
  Refused refused;
};
MadeGraph make_graph(const std::vector<DescriptorPointer>& operations);

/// Whether an operation's tensors suit each other.
Refused check_operation(const Descriptor& operation);

}  // namespace tessera::emulated::cudnn
