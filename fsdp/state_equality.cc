#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/objects.h"
#include "tessera/distributed/parameters/rank_equality.h"
#include "tessera/fsdp/testing.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {
namespace {

using distributed::ProcessGroup;

constexpr const char* kWhere = "fsdp.assert_module_states_equal";

// One parameter or buffer of a rank.
struct State {
  std::string name;
  std::string kind;  // equal on all ranks
  std::string part;  // ranks with the same part must have equal elements
  std::int64_t bytes = 0;
  Tensor tensor;  // this rank's tensor; undefined if it is not materialized
};

// The text sent to other ranks: a line per state with name, kind, part and bytes.
std::string to_text(const std::vector<State>& states) {
  std::string out;
  for (const State& s : states)
    out += fmt::format("{}\n{}\n{}\n{}\n", s.name, s.kind, s.part, s.bytes);
  return out;
}

std::vector<State> from_text(const std::string& text) {
  std::vector<State> out;
  std::istringstream lines(text);
  std::string bytes;
  for (State s; std::getline(lines, s.name);) {
    std::getline(lines, s.kind);
    std::getline(lines, s.part);
    std::getline(lines, bytes);
    s.bytes = std::stoll(bytes);
    out.push_back(s);
  }
  return out;
}

std::string kind_text(DType dtype, const Shape& shape, bool materialized) {
  return fmt::format("{} {}{}", dtype_name(dtype), shape.str(),
                     materialized ? "" : ", not materialised");
}

bool is_compared(const nn::Parameter& parameter, const ModuleStatesOptions& options) {
  return std::none_of(options.except_tags.begin(), options.except_tags.end(),
                      [&](const std::string& tag) { return parameter.has_tag(tag); });
}

std::int64_t bytes_of(const Tensor& x) {
  return x.defined() ? x.numel() * static_cast<std::int64_t>(dtype_size(x.dtype())) : 0;
}

std::vector<State> states_of(const nn::Module& model, const ModuleStatesOptions& options) {
  std::vector<State> out;
  const auto add = [&out](const std::string& name, const std::string& kind, const Tensor& tensor) {
    out.push_back(
        {.name = name, .kind = kind, .part = {}, .bytes = bytes_of(tensor), .tensor = tensor});
  };
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!is_compared(parameter, options)) continue;
    const nn::ShardSpec& spec = parameter.spec();
    const bool there = parameter.is_materialized();
    add(name, kind_text(parameter.dtype(), spec.global_shape, there),
        there ? parameter.local().tensor() : Tensor());
    for (const nn::ShardBox& box : spec.boxes)
      out.back().part += box.offset.str() + box.extent.str();
  }
  if (!options.buffers) return out;
  for (const auto& [name, buffer] : model.named_buffers()) {
    const bool there = buffer.is_materialized();
    add(name, kind_text(buffer.dtype(), buffer.shape(), there), there ? buffer.tensor() : Tensor());
  }
  return out;
}

// The memory of a contiguous tensor, as bytes.
Tensor as_bytes(const Tensor& x) {
  const auto size = static_cast<std::int64_t>(dtype_size(x.dtype()));
  return Tensor::over(x.storage(), {x.numel() * size}, {1}, x.offset() * size, DType::kU8);
}

// A comparison with the caller's function.
class Comparison {
 public:
  Comparison(ProcessGroup& group, std::vector<State> states, const ModuleStatesOptions& options)
      : group_(group), states_(std::move(states)), compare_(options.compare) {}

  // All ranks return the same text, because each has all the data that it depends on.
  std::string run() {
    for (const std::string& text : distributed::all_gather_texts(group_, to_text(states_)))
      all_.push_back(from_text(text));
    const std::string kinds = kind_difference();
    if (!kinds.empty()) return kinds;
    for (std::size_t i = 0; i < states_.size(); ++i) compare_state(i);
    return text_;
  }

 private:
  std::string kind_difference() const {
    const std::vector<State>& first = all_.front();
    for (std::size_t rank = 1; rank < all_.size(); ++rank) {
      const std::vector<State>& other = all_[rank];
      if (other.size() != first.size()) {
        return fmt::format("rank {} has {} states, rank {} has {}", world_rank(0), first.size(),
                           world_rank(rank), other.size());
      }
      for (std::size_t i = 0; i < first.size(); ++i) {
        if (first[i].name == other[i].name && first[i].kind == other[i].kind) continue;
        return fmt::format("\"{}\" ({}) on rank {} is \"{}\" ({}) on rank {}", first[i].name,
                           first[i].kind, world_rank(0), other[i].name, other[i].kind,
                           world_rank(rank));
      }
    }
    return {};
  }

  void compare_state(std::size_t i) {
    std::int64_t width = 0;
    for (const auto& states : all_) width = std::max(width, states[i].bytes);
    if (width == 0) return;
    const std::vector<Tensor> tensors = gathered(i, width);
    std::map<std::string, std::size_t> first_of;  // by part
    for (std::size_t rank = 0; rank < all_.size(); ++rank) {
      const std::size_t first = first_of.emplace(all_[rank][i].part, rank).first->second;
      if (first == rank) continue;
      const std::string text = compare_(tensors[first], tensors[rank]);
      if (text.empty()) continue;
      text_ +=
          fmt::format("{}\"{}\" of rank {} beside that of rank {}: {}", text_.empty() ? "" : "; ",
                      states_[i].name, world_rank(rank), world_rank(first), text);
    }
  }

  // Every rank's tensor of a state, flat, on the host. Parts may be uneven, so they are sent
  // padded.
  std::vector<Tensor> gathered(std::size_t i, std::int64_t width) {
    const Tensor sent = zeros({width}, {.dtype = DType::kU8, .device = kCpu});
    const Tensor mine = contiguous(to_device(states_[i].tensor, kCpu));
    copy_(sent.slice(0, 0, bytes_of(mine)), as_bytes(mine));
    const Tensor all =
        Tensor::empty({width * group_.size()}, {.dtype = DType::kU8, .device = kCpu});
    distributed::all_gather(group_, std::span(&sent, 1), std::span(&all, 1), kWhere).wait();
    std::vector<Tensor> out;
    for (std::int64_t rank = 0; rank < group_.size(); ++rank) {
      const std::int64_t bytes = all_[static_cast<std::size_t>(rank)][i].bytes;
      const auto size = static_cast<std::int64_t>(dtype_size(mine.dtype()));
      const Tensor tensor = Tensor::empty({bytes / size}, {.dtype = mine.dtype(), .device = kCpu});
      copy_(as_bytes(tensor), all.slice(0, rank * width, rank * width + bytes));
      out.push_back(tensor);
    }
    return out;
  }

  int world_rank(std::size_t rank) const { return group_.ranks()[rank]; }

  ProcessGroup& group_;
  std::vector<State> states_;
  const std::function<std::string(const Tensor&, const Tensor&)>& compare_;
  std::vector<std::vector<State>> all_;  // by rank
  std::string text_;
};

void assert_equal_bits(const nn::Module& model, ProcessGroup& group,
                       const ModuleStatesOptions& options) {
  std::vector<nn::Parameter> parameters;
  for (const nn::Parameter& parameter : model.parameters()) {
    if (is_compared(parameter, options)) parameters.push_back(parameter);
  }
  distributed::assert_equal_across_ranks(group, std::span<const nn::Parameter>(parameters));
  if (!options.buffers) return;
  std::vector<nn::Buffer> buffers;
  for (const auto& named : model.named_buffers()) buffers.push_back(named.buffer);
  distributed::assert_equal_across_ranks(group, std::span<const nn::Buffer>(buffers));
}

}  // namespace

void assert_module_states_equal(const nn::Module& model, ProcessGroup& group,
                                const ModuleStatesOptions& options) {
  if (!options.compare) return assert_equal_bits(model, group, options);
  const std::string text = Comparison(group, states_of(model, options), options).run();
  TESSERA_CHECK_AS(StateError, text.empty(), kWhere,
                   "states differ between the ranks of group \"{}\": {}; start them from one seed "
                   "or one file, and give all ranks the same gradients",
                   group.name(), text);
}

void assert_module_states_equal(const nn::Module& model, const distributed::DeviceMesh& mesh,
                                const ModuleStatesOptions& options) {
  // Along one axis, some groups may agree while others do not. Errors are thrown at the end,
  // because the ranks of a group that agrees go on to the collectives of the next axis.
  std::string text;
  for (const std::string& axis : mesh.axes()) {
    try {
      assert_module_states_equal(model, *mesh.group(axis), options);
    } catch (const StateError& error) {
      text += error.what();
    }
  }
  for (const std::string& axis : mesh.axes()) {
    const auto texts = distributed::all_gather_texts(*mesh.group(axis), text);
    const std::set<std::string> different(texts.begin(), texts.end());
    text = fmt::format("{}", fmt::join(different, ""));
  }
  TESSERA_CHECK_AS(StateError, text.empty(), kWhere, "{}", text);
}

}  // namespace tessera::fsdp
