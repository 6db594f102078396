#include "tessera/fsdp/state/state_entries.h"

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>

#include "tessera/distributed/objects.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/memory_counters.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

// The serialised value, bit for bit; for a tensor, its metadata without elements.
std::string packed(const nn::StateValue& value) {
  return std::visit(
      []<class T>(const T& each) -> std::string {
        if constexpr (std::is_same_v<T, Tensor>) {
          std::vector<std::int64_t> numbers = {each.device().is_null() ? 0 : 1,
                                               static_cast<std::int64_t>(each.dtype())};
          numbers.insert(numbers.end(), each.shape().begin(), each.shape().end());
          return distributed::packed_numbers(numbers);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return each;
        } else if constexpr (std::is_same_v<T, double>) {
          return distributed::packed_numbers({std::bit_cast<std::int64_t>(each)});
        } else {
          return distributed::packed_numbers({std::int64_t{each}});
        }
      },
      value);
}

// `kind`: the nn::state_value_kind of the packed value.
std::variant<TensorEntry, nn::StateValue> unpacked(const std::string& kind,
                                                   const std::string& value) {
  if (kind == "text") return nn::StateValue(value);
  const std::vector<std::int64_t> numbers = distributed::unpacked_numbers(value);
  if (kind == "tensor") {
    return TensorEntry{.dtype = static_cast<DType>(numbers.at(1)),
                       .shape = Shape(std::span(numbers).subspan(2)),
                       .has_elements = numbers[0] != 0,
                       .tensor = {}};
  }
  if (kind == "bool") return nn::StateValue(numbers.at(0) != 0);
  if (kind == "integer") return nn::StateValue(numbers.at(0));
  return nn::StateValue(std::bit_cast<double>(numbers.at(0)));
}

}  // namespace

std::vector<StateEntry> share_entries(const nn::StateDict& state, const MeshRanks& ranks) {
  std::vector<std::string> mine;  // name, kind and value of each
  if (ranks.is_first()) {
    for (const auto& [name, value] : state) {
      mine.insert(mine.end(), {name, nn::state_value_kind(value), packed(value)});
    }
  }
  const std::vector<std::string> first = ranks.broadcast_texts(mine);
  std::vector<StateEntry> out;
  for (std::size_t i = 0; i + 2 < first.size(); i += 3) {
    out.push_back({.name = first[i], .value = unpacked(first[i + 1], first[i + 2])});
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
