#include <algorithm>
#include <numeric>
#include <set>
#include <type_traits>

#include "tessera/tensor/check.h"
#include "tessera/tensor/io/atomic_file.h"
#include "tessera/tensor/io/safetensors.h"
#include "tessera/tensor/io/safetensors_header.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera {
namespace {

constexpr const char* kWhere = "write_safetensors";

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

void check_names(const NamedTensors& tensors, const SafetensorsMetadata& metadata) {
  std::set<std::string> seen;
  for (const auto& [name, tensor] : tensors) {
    TESSERA_CHECK(name != "__metadata__", kWhere,
                  "a tensor cannot be called \"{}\": that is the format's name for its texts",
                  name);
    TESSERA_CHECK(seen.insert(name).second, kWhere, "tensor \"{}\" stands twice", name);
    TESSERA_CHECK(tensor.defined(), kWhere, "tensor \"{}\" is undefined", name);
    TESSERA_CHECK_AS(StateError, !tensor.device().is_null(), kWhere,
                     "tensor \"{}\" of shape {} is on the null device and has no values: a plan "
                     "cannot be saved",
                     name, tensor.shape().str());
  }
  seen.clear();
  for (const auto& [key, value] : metadata) {
    TESSERA_CHECK(seen.insert(key).second, kWhere, "metadata \"{}\" stands twice", key);
  }
}

// The order of the elements in the file: the widest first, so that each tensor starts at a multiple
// of its element's size.
std::vector<std::size_t> by_width(const NamedTensors& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return dtype_size(tensors[a].second.dtype()) > dtype_size(tensors[b].second.dtype());
  });
  return order;
}

std::string header_text(const NamedTensors& tensors, const SafetensorsMetadata& metadata,
                        const std::vector<std::size_t>& order) {
  detail::SafetensorsHeader header{.tensors = {}, .metadata = metadata};
  for (const auto& [name, tensor] : tensors) {
    header.tensors.push_back({.name = name,
                              .dtype_name = detail::safetensors_dtype_name(tensor.dtype()),
                              .dtype = tensor.dtype(),
                              .shape = tensor.shape()});
  }
  std::uint64_t reached = 0;
  for (std::size_t i : order) {
    const Tensor& tensor = tensors[i].second;
    header.tensors[i].begin = reached;
    reached += static_cast<std::uint64_t>(tensor.numel()) * dtype_size(tensor.dtype());
    header.tensors[i].end = reached;
  }
  std::string text = detail::safetensors_header_text(header);
  TESSERA_CHECK(text.size() <= kMaxSafetensorsHeader, kWhere,
                "names, shapes and metadata make a header of {} bytes; at most {} can be read back",
                text.size(), kMaxSafetensorsHeader);
  return text;
}

void write_elements(AtomicFile& file, const Tensor& tensor) {
  dispatch_all(tensor.dtype(), kWhere, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) {
      write_elements(file, cast(tensor, DType::kU8));
    } else {
      const std::vector<T> values = tensor.to_vector<T>();
      file.write(values.data(), values.size() * sizeof(T));
    }
  });
}

}  // namespace

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const SafetensorsMetadata& metadata) {
  check_names(tensors, metadata);
  const std::vector<std::size_t> order = by_width(tensors);
  const std::string text = header_text(tensors, metadata, order);
  const std::uint64_t length = text.size();
  AtomicFile file(kWhere, path);
  file.write(&length, sizeof(length));
  file.write(text.data(), text.size());
  for (std::size_t i : order) write_elements(file, tensors[i].second);
  file.commit();
}

}  // namespace tessera
