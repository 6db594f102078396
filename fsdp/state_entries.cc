#include "tessera/fsdp/state_entries.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops_elementwise.h"
#include "tessera/tensor/transfer.h"

namespace tessera::fsdp {
namespace {

using distributed::Json;

Json shape_json(const Shape& shape) {
  Json out = Json::array();
  for (const std::int64_t extent : shape) out.push_back(extent);
  return out;
}

Json value_json(const nn::StateValue& value) {
  return std::visit(
      []<class T>(const T& each) -> Json {
        if constexpr (std::is_same_v<T, Tensor>) {
          return {{"dtype", static_cast<int>(each.dtype())},
                  {"shape", shape_json(each.shape())},
                  {"has_elements", !each.device().is_null()}};
        } else {
          return each;
        }
      },
      value);
}

std::variant<TensorEntry, nn::StateValue> value_of(const Json& json) {
  if (json.is_object()) {
    const auto shape = json.at("shape").get<std::vector<std::int64_t>>();
    return TensorEntry{.dtype = static_cast<DType>(json.at("dtype").get<int>()),
                       .shape = Shape(std::span<const std::int64_t>(shape)),
                       .has_elements = json.at("has_elements").get<bool>(),
                       .tensor = {}};
  }
  if (json.is_boolean()) return nn::StateValue(json.get<bool>());
  if (json.is_number_integer()) return nn::StateValue(json.get<std::int64_t>());
  if (json.is_number()) return nn::StateValue(json.get<double>());
  return nn::StateValue(json.get<std::string>());
}

}  // namespace

std::vector<StateEntry> share_entries(const nn::StateDict& state, const MeshRanks& ranks) {
  Json mine = Json::array();
  if (ranks.is_first()) {
    for (const auto& [name, value] : state) mine.push_back(Json::array({name, value_json(value)}));
  }
  std::vector<StateEntry> out;
  for (const Json& each : ranks.broadcast_object(mine)) {
    out.push_back({.name = each.at(0).get<std::string>(), .value = value_of(each.at(1))});
    auto* tensor = std::get_if<TensorEntry>(&out.back().value);
    if (tensor != nullptr && ranks.is_first()) tensor->tensor = state.tensor(out.back().name);
  }
  return out;
}

Tensor share_tensor(const TensorEntry& entry, const MeshRanks& ranks, Device device,
                    const std::string& name) {
  const MemoryCategoryScope category(MemoryCategory::kCommunication);
  const Tensor tensor = ranks.is_first()
                            ? contiguous(to_device(entry.tensor, device))
                            : Tensor::empty(entry.shape, {.dtype = entry.dtype, .device = device});
  ranks.broadcast(std::span(&tensor, 1), name);
  return tensor;
}

}  // namespace tessera::fsdp
