#include "tessera/tests/support/emulated_gpu/cudnn/cudnn_graph.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

namespace tessera::emulated::cudnn {
namespace {

cudnnDataType_t compute_type_of(const Descriptor& o) {
  const struct {
    int operation, descriptor, attribute;
  } places[] = {
      {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
       CUDNN_ATTR_MATMUL_COMP_TYPE},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
       CUDNN_ATTR_POINTWISE_MATH_PREC},
      {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
       CUDNN_ATTR_REDUCTION_COMP_TYPE},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_CONVOLUTION_COMP_TYPE},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_CONVOLUTION_COMP_TYPE},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_CONVOLUTION_COMP_TYPE},
  };
  for (const auto& place : places) {
    if (place.operation != o.type) continue;
    return o.descriptor(place.descriptor)->one<cudnnDataType_t>(place.attribute, CUDNN_DATA_FLOAT);
  }
  return CUDNN_DATA_FLOAT;
}

bool same(const Tensor& a, const Tensor& b) {
  return a.type == b.type && a.dims == b.dims && a.strides == b.strides &&
         a.is_virtual == b.is_virtual && a.by_value == b.by_value;
}

Refused bad(std::string why) { return {CUDNN_STATUS_BAD_PARAM, std::move(why)}; }

// Puts operations after those that write what they read.
Refused sort(Graph& graph) {
  std::set<std::int64_t> written, ready;
  for (const Operation& one : graph.operations) {
    if (!written.insert(one.output()).second) {
      return bad(fmt::format("two operations write tensor {}", one.output()));
    }
  }
  for (const auto& [id, tensor] : graph.tensors) {
    if (written.contains(id)) continue;
    if (tensor.is_virtual) return bad(fmt::format("nothing writes the virtual tensor {}", id));
    ready.insert(id);
  }
  std::vector<Operation> left, sorted;
  std::swap(left, graph.operations);
  while (!left.empty()) {
    const auto next = std::find_if(left.begin(), left.end(), [&](const Operation& one) {
      return std::all_of(one.tensors.begin(), one.tensors.end(), [&](const auto& used) {
        return used.first == Role::kY || ready.contains(used.second);
      });
    });
    if (next == left.end()) return bad("operations read each other's results in a circle");
    ready.insert(next->output());
    sorted.push_back(*next);
    left.erase(next);
  }
  graph.operations = std::move(sorted);
  return {};
}

}  // namespace

std::int64_t Tensor::numel() const {
  std::int64_t all = 1;
  for (const std::int64_t dim : dims) all *= dim;
  return all;
}
std::int64_t Tensor::extent() const {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < dims.size(); ++i) last += (dims[i] - 1) * strides[i];
  return last + 1;
}
std::size_t Tensor::bytes() const {
  return static_cast<std::size_t>(extent()) * cudnn::size_of(type);
}

std::size_t size_of(cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_BOOLEAN:
      return 1;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_DOUBLE:
      return 8;
    default:
      return 0;
  }
}

Tensor tensor_of(const Descriptor& d) {
  Tensor t;
  t.id = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  t.type = d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  t.dims = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  t.strides = d.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  t.alignment = d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  t.is_virtual = d.one<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
  t.by_value = d.one<char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
  return t;
}

std::map<Role, DescriptorPointer> tensors_of(const Descriptor& o) {
  using enum Role;
  const auto roles = [&](std::initializer_list<std::pair<Role, int>> attributes) {
    std::map<Role, DescriptorPointer> found;
    for (const auto& [role, attribute] : attributes) {
      if (o.has(attribute)) found[role] = o.descriptor(attribute);
    }
    return found;
  };
  switch (o.type) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      return roles({{kX, CUDNN_ATTR_OPERATION_MATMUL_ADESC},
                    {kB, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                    {kY, CUDNN_ATTR_OPERATION_MATMUL_CDESC}});
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      return roles({{kX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC},
                    {kB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC},
                    {kT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC},
                    {kY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC}});
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      return roles(
          {{kX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, {kY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC}});
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      return roles(
          {{kX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, {kY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC}});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      return roles({{kX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X},
                    {kB, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
                    {kY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}});
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      return roles({{kX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                    {kB, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
                    {kY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX}});
    default:
      return roles({{kX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X},
                    {kB, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
                    {kY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW}});
  }
}

bool Graph::is_half() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const auto& entry) {
                       const Tensor& t = entry.second;
                       return t.is_virtual || t.by_value || t.type == CUDNN_DATA_HALF ||
                              t.type == CUDNN_DATA_BFLOAT16 || t.type == CUDNN_DATA_FLOAT;
                     }) &&
         std::any_of(tensors.begin(), tensors.end(), [](const auto& entry) {
           return cudnn::size_of(entry.second.type) == 2 && !entry.second.is_virtual;
         });
}
bool Graph::is_double() const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const auto& entry) { return entry.second.type == CUDNN_DATA_DOUBLE; });
}

MadeGraph make_graph(const std::vector<DescriptorPointer>& operations) {
  auto graph = std::make_shared<Graph>();
  for (const DescriptorPointer& descriptor : operations) {
    Operation made;
    made.descriptor = descriptor;
    made.compute_type = compute_type_of(*descriptor);
    for (const auto& [role, used] : tensors_of(*descriptor)) {
      const Tensor tensor = tensor_of(*used);
      const auto [place, fresh] = graph->tensors.emplace(tensor.id, tensor);
      if (!fresh && !same(place->second, tensor)) {
        return {nullptr, bad(fmt::format("two different tensors have the id {}", tensor.id))};
      }
      made.tensors[role] = tensor.id;
    }
    graph->operations.push_back(std::move(made));
  }
  const Refused refused = sort(*graph);
  if (!refused.ok()) return {nullptr, refused};
  return {graph, {}};
}

}  // namespace tessera::emulated::cudnn
