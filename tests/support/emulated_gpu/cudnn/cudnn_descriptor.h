#pragma once

/// Backend descriptors of the emulated cuDNN: attributes with their types and counts checked, kept
/// until the descriptor is finalized, read-only from then on. What a descriptor means is judged
/// when it is finalized (cudnn_finalize.h).
///
/// Emulated: tensors, graphs of matmul, pointwise, reduction, reshape and convolution operations,
/// heuristics, engines, execution plans and variant packs. Nothing here is thread-safe for one
/// descriptor; different ones may be used by different threads.

#include <cudnn.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::emulated::cudnn {

struct Graph;
struct Plan;

struct Descriptor;
using DescriptorPointer = std::shared_ptr<Descriptor>;

struct Value {
  cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64;
  std::int64_t count = 0;
  std::vector<char> bytes;
  std::vector<DescriptorPointer> descriptors;  // in place of bytes
};

struct Descriptor {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<int, Value> values;  // by attribute
  // What finalizing made of some kinds.
  std::shared_ptr<const Graph> graph;  // of graphs, heuristics, engines, configurations
  std::shared_ptr<const Plan> plan;
  int engine = -1;              // of engines and configurations
  std::int64_t workspaces = 1;  // of configurations (cudnn_engines.h)

  bool has(int attribute) const { return values.contains(attribute); }
  /// All elements of an attribute; none where it is not set.
  template <class T>
  std::vector<T> all(int attribute) const {
    const auto found = values.find(attribute);
    if (found == values.end()) return {};
    std::vector<T> elements(found->second.bytes.size() / sizeof(T));
    std::memcpy(static_cast<void*>(elements.data()), found->second.bytes.data(),
                elements.size() * sizeof(T));
    return elements;
  }
  template <class T>
  T one(int attribute, T otherwise) const {
    const auto elements = all<T>(attribute);
    return elements.empty() ? otherwise : elements[0];
  }
  /// A factor that may be FLOAT or DOUBLE.
  double number(int attribute, double otherwise) const;
  DescriptorPointer descriptor(int attribute) const;
};

/// The live descriptor of a handle; null where there is none.
DescriptorPointer find(cudnnBackendDescriptor_t handle);

/// What an attribute of a kind of descriptor takes; null where it has no such attribute.
struct Schema {
  int descriptor, attribute;
  cudnnBackendAttributeType_t type, other_type;  // one of both
  std::int64_t least, most;                      // elements
  bool required;
  bool computed;  // can only be read
};
const Schema* find_schema(int descriptor, int attribute);
/// Of all attributes of a kind; empty for kinds that are not emulated.
std::vector<const Schema*> schemas_of(int descriptor);
std::size_t size_of(cudnnBackendAttributeType_t type);

/// Says why on stderr, and keeps it for cudnnGetLastErrorString.
cudnnStatus_t refuse(const char* function, cudnnStatus_t status, const std::string& why);

}  // namespace tessera::emulated::cudnn
