#include "tessera/fsdp/checkpoint/write_plan.h"

#include <algorithm>
#include <map>
#include <optional>

#include "tessera/distributed/objects.h"
#include "tessera/distributed/rank_texts.h"
#include "tessera/fsdp/checkpoint/boxes.h"
#include "tessera/nn/mesh/shard_boxes.h"
#include "tessera/nn/state/state_value_text.h"
#include "tessera/tensor/check.h"

namespace tessera::checkpoint {
namespace {

using distributed::all_gather_lists;
using distributed::on_all_ranks;
using distributed::packed_numbers;
using distributed::packed_texts;
using distributed::unpacked_numbers;
using distributed::unpacked_texts;

constexpr const char* kWhere = "checkpoint.save";

// What a rank says of an entry of its dict.
struct Described {
  std::string name;
  std::optional<nn::StateValue> value = std::nullopt;  // of an entry that is no tensor
  DType dtype = DType::kF32;
  Shape shape = {};
  bool is_part = false;
  std::vector<nn::ShardBox> boxes = {};
};

void append(std::vector<std::int64_t>& numbers, const Shape& shape) {
  numbers.insert(numbers.end(), shape.begin(), shape.end());
}

// A spec that does not describe its tensor would be published as another part of the file.
void check_part(const std::string& name, const Tensor& tensor, const nn::ShardSpec& part) {
  const Shape shape =
      nn::detail::rows_shape(part, nn::ShardSpec::whole(part.global_shape), "\"" + name + "\"");
  TESSERA_CHECK(shape == tensor.shape(), kWhere,
                "\"{}\" of shape {} is marked as a part of {} that has shape {}", name,
                tensor.shape().str(), part.global_shape.str(), shape.str());
}

// A tensor: name, then the dtype, whether it is a part, the dims, the shape, and offset and extent of
// each box. A value: name, kind and text.
std::string packed(const std::string& name, const nn::StateValue& value,
                   const nn::ShardSpec* part) {
  const Tensor* tensor = std::get_if<Tensor>(&value);
  if (tensor == nullptr)
    return packed_texts({name, nn::state_value_kind(value), nn::state_value_text(value)});
  TESSERA_CHECK_AS(
      StateError, !tensor->device().is_null(), kWhere,
      "tensor \"{}\" of shape {} is on the null device and has no values: a plan cannot "
      "be saved",
      name, tensor->shape().str());
  if (part != nullptr) check_part(name, *tensor, *part);
  const Shape& shape = part == nullptr ? tensor->shape() : part->global_shape;
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(tensor->dtype()),
                                       part != nullptr ? 1 : 0, shape.ndim()};
  append(numbers, shape);
  const std::vector<nn::ShardBox> boxes =
      part == nullptr ? std::vector{whole_box(shape)} : part->boxes;
  numbers.push_back(std::ssize(boxes));
  for (const nn::ShardBox& box : boxes) {
    append(numbers, box.offset);
    append(numbers, box.extent);
  }
  return packed_texts({name, packed_numbers(numbers)});
}

Described unpacked(const std::string& text) {
  const std::vector<std::string> parts = unpacked_texts(text);
  Described out{.name = parts.at(0)};
  if (parts.size() == 3) {
    out.value = nn::parse_state_value(parts[1], parts[2]);
    return out;
  }
  const std::vector<std::int64_t> numbers = unpacked_numbers(parts.at(1));
  out.dtype = static_cast<DType>(numbers.at(0));
  out.is_part = numbers.at(1) != 0;
  const auto ndim = static_cast<std::size_t>(numbers.at(2));
  std::size_t at = 3;
  const auto shape = [&] {
    at += ndim;
    return Shape(std::span(numbers).subspan(at - ndim, ndim));
  };
  out.shape = shape();
  for (std::int64_t boxes = numbers.at(at++); boxes > 0; --boxes) {
    const Shape offset = shape();
    out.boxes.push_back({.offset = offset, .extent = shape()});
  }
  return out;
}

// Collects what ranks say; ranks come in order.
class Planner {
 public:
  explicit Planner(std::size_t ranks) { plan_.bytes.assign(ranks, 0); }

  void add(const Described& described, std::size_t rank) {
    if (described.value) {
      TESSERA_CHECK(positions_.count(described.name) == 0, kWhere,
                    "\"{}\" is a value on rank {} and a tensor on another", described.name, rank);
      if (!plan_.values.contains(described.name))
        plan_.values.set(described.name, *described.value);
      return;
    }
    TESSERA_CHECK(!plan_.values.contains(described.name), kWhere,
                  "\"{}\" is a tensor on rank {} and a value on another", described.name, rank);
    const auto [found, is_new] = positions_.emplace(described.name, plan_.tensors.size());
    if (is_new) {
      plan_.tensors.push_back({.name = described.name,
                               .dtype = described.dtype,
                               .shape = described.shape,
                               .boxes = {}});
      owners_.emplace_back();
    }
    const StoredTensor& tensor = plan_.tensors[found->second];
    TESSERA_CHECK(tensor.dtype == described.dtype && tensor.shape == described.shape, kWhere,
                  "\"{}\" is {} {} on rank {}, and {} {} on a rank before it", described.name,
                  dtype_name(described.dtype), described.shape.str(), rank,
                  dtype_name(tensor.dtype), tensor.shape.str());
    if (!is_new && !described.is_part) return;
    for (const nn::ShardBox& box : described.boxes) {
      if (box.extent.numel() == 0) continue;
      owners_[found->second][key_of(box)].push_back(rank);
    }
  }

  WritePlan take() {
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) assign(plan_.tensors[i], owners_[i]);
    return std::move(plan_);
  }

 private:
  using Key = std::vector<std::int64_t>;  // offset and extent
  using Owners = std::map<Key, std::vector<std::size_t>>;

  static Key key_of(const nn::ShardBox& box) {
    Key key(box.offset.begin(), box.offset.end());
    append(key, box.extent);
    return key;
  }

  void assign(StoredTensor& tensor, const Owners& owners) {
    std::vector<nn::ShardBox> boxes;
    for (const auto& [key, ranks] : owners) {
      const std::span<const std::int64_t> numbers(key);
      const nn::ShardBox box{.offset = Shape(numbers.first(key.size() / 2)),
                             .extent = Shape(numbers.last(key.size() / 2))};
      const std::size_t writer = *std::min_element(
          ranks.begin(), ranks.end(),
          [this](std::size_t a, std::size_t b) { return plan_.bytes[a] < plan_.bytes[b]; });
      plan_.bytes[writer] +=
          static_cast<std::uint64_t>(box.extent.numel()) * dtype_size(tensor.dtype);
      tensor.boxes.push_back({.box = box, .file = writer, .begin = 0});
      boxes.push_back(box);
    }
    const std::string problem = cover_problem(tensor.shape, boxes);
    TESSERA_CHECK(problem.empty(), kWhere, "\"{}\" of shape {} is not whole: {}", tensor.name,
                  tensor.shape.str(), problem);
  }

  WritePlan plan_;
  std::map<std::string, std::size_t> positions_;
  std::vector<Owners> owners_;  // of the plan's tensors
};

}  // namespace

WritePlan plan_write(const nn::StateDict& state, distributed::ProcessGroup* group) {
  std::vector<std::string> mine;
  on_all_ranks(group, [&] {
    for (const auto& [name, value] : state)
      mine.push_back(packed(name, value, state.part_of(name)));
  });
  const std::vector<std::vector<std::string>> all = all_gather_lists(group, mine);
  Planner planner(all.size());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const std::string& each : all[rank]) planner.add(unpacked(each), rank);
  }
  return planner.take();
}

std::vector<std::pair<std::string, Tensor>> tensors_of(const WritePlan& plan, int rank,
                                                       const nn::StateDict& state) {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const StoredTensor& stored : plan.tensors) {
    for (const StoredBox& wanted : stored.boxes) {
      if (wanted.file != static_cast<std::size_t>(rank)) continue;
      const Tensor& tensor = state.tensor(stored.name);
      const nn::ShardSpec* part = state.part_of(stored.name);
      if (part == nullptr) {
        out.emplace_back(stored.name, tensor);
        continue;
      }
      nn::detail::for_each_box(tensor, *part, [&](const Tensor& rows, const nn::ShardBox& box) {
        if (box == wanted.box)
          out.emplace_back(fmt::format("{} {}", stored.name, box_text(box)), rows);
      });
    }
  }
  return out;
}

}  // namespace tessera::checkpoint
