// share_entries: rank 0's state arrives bit for bit, for every kind of value.
#include "tessera/fsdp/state/state_entries.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/tensor/ops/create.h"
#include "tessera/tests/support/ranks.h"

namespace tessera::testing {
namespace {

using fsdp::StateEntry;

// The bits of non-tensor values, since a NaN is not equal to itself.
std::string text_of(const StateEntry& entry) {
  const auto& value = std::get<nn::StateValue>(entry.value);
  const char* kind = nn::state_value_kind(value);
  if (const auto* number = std::get_if<double>(&value))
    return fmt::format("{} {} {:x}", entry.name, kind, std::bit_cast<std::uint64_t>(*number));
  if (const auto* text = std::get_if<std::string>(&value))
    return fmt::format("{} {} {}", entry.name, kind, *text);
  const bool is_bool = std::holds_alternative<bool>(value);
  return fmt::format("{} {} {}", entry.name, kind,
                     is_bool ? std::get<bool>(value) : std::get<std::int64_t>(value));
}

nn::StateDict values_of_rank0() {
  using Doubles = std::numeric_limits<double>;
  using Integers = std::numeric_limits<std::int64_t>;
  nn::StateDict out;
  int count = 0;
  const auto add = [&](nn::StateValue value) {
    out.set(fmt::format("value {}\xff", count++), std::move(value));
  };
  for (const double x : {0.1, -0.0, 3.0, Doubles::denorm_min(), Doubles::max(), Doubles::infinity(),
                         -Doubles::infinity(), Doubles::quiet_NaN(),
                         std::bit_cast<double>(std::uint64_t{0xfff8'0000'dead'beef})})
    add(x);
  for (const std::int64_t x : {std::int64_t{0}, std::int64_t{-1}, Integers::min(), Integers::max()})
    add(x);
  add(true);
  add(false);
  add(std::string());
  add(std::string("\0\xff\xc3\x28\n", 5));
  add(std::string(100'000, 'x'));
  return out;
}

TESSERA_RANK_TEST("values of a state arrive with every bit and in their order", "[fsdp][state]") {
  const nn::StateDict all = values_of_rank0();
  const fsdp::MeshRanks ranks(t.world().mesh());
  const std::vector<StateEntry> entries =
      fsdp::share_entries(t.rank() == 0 ? all : nn::StateDict(), ranks);
  if (!t.check(entries.size() == all.size(), "{} entries", entries.size())) return;
  std::size_t i = 0;
  for (const auto& [name, value] : all) {
    const std::string expected = text_of({.name = name, .value = value});
    const StateEntry& entry = entries[i++];
    if (!t.check(entry.tensor() == nullptr, "{} is a tensor", name)) continue;
    t.check(text_of(entry) == expected, "{} is {}", expected, text_of(entry));
  }
}

TESSERA_RANK_TEST("of a tensor arrive dtype, shape and whether it has elements", "[fsdp][state]") {
  const std::vector<Tensor> tensors = {
      full({}, 2), zeros({0, 3}, {.dtype = DType::kI64}),
      zeros({1, 2, 1, 3}, {.dtype = DType::kBF16}),
      Tensor::empty({5, 7}, {.dtype = DType::kBool, .device = kNull})};
  nn::StateDict state;
  if (t.rank() == 0) {
    for (std::size_t i = 0; i < tensors.size(); ++i) state.set(std::to_string(i), tensors[i]);
  }
  const fsdp::MeshRanks ranks(t.world().mesh());
  const std::vector<StateEntry> entries = fsdp::share_entries(state, ranks);
  if (!t.check(entries.size() == tensors.size(), "{} entries", entries.size())) return;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const fsdp::TensorEntry* tensor = entries[i].tensor();
    if (!t.check(tensor != nullptr, "{} is no tensor", i)) continue;
    t.check(entries[i].name == std::to_string(i), "{} is \"{}\"", i, entries[i].name);
    t.check(tensor->dtype == tensors[i].dtype() && tensor->shape == tensors[i].shape(),
            "{} is {} {}", i, dtype_name(tensor->dtype), tensor->shape.str());
    t.check(tensor->has_elements != tensors[i].device().is_null(), "{} has elements", i);
    t.check(tensor->tensor.defined() == (t.rank() == 0), "{} is at hand", i);
  }
}

}  // namespace
}  // namespace tessera::testing
