#include "tessera/fsdp/state/whole_values.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "tessera/distributed/collectives.h"
#include "tessera/distributed/mesh/device_mesh.h"
#include "tessera/distributed/objects.h"
#include "tessera/distributed/parameters/parameters.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::fsdp {

using distributed::DeviceMesh;

bool MeshRanks::is_first() const {
  return std::all_of(axes_.begin(), axes_.end(),
                     [this](const std::string& axis) { return mesh_.coordinate(axis) == 0; });
}

// The first rank broadcasts along the first axis, then each rank that has the data along the second
// axis, and so on. A group along `axis` takes part if its ranks are at coordinate 0 on all later
// axes.
bool MeshRanks::sends_along(std::size_t axis) const {
  return std::all_of(axes_.begin() + static_cast<std::ptrdiff_t>(axis) + 1, axes_.end(),
                     [this](const std::string& later) { return mesh_.coordinate(later) == 0; });
}

void MeshRanks::broadcast(std::span<const Tensor> tensors, const std::string& label) const {
  if (tensors.empty()) return;
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (sends_along(i)) distributed::broadcast(*mesh_.group(axes_[i]), tensors, 0, label);
  }
}

std::vector<std::string> MeshRanks::broadcast_texts(const std::vector<std::string>& texts) const {
  std::string packed = distributed::packed_texts(texts);
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    if (sends_along(i)) packed = distributed::broadcast_text(*mesh_.group(axes_[i]), packed, 0);
  }
  return distributed::unpacked_texts(packed);
}

std::vector<std::vector<std::string>> MeshRanks::all_gather_texts(
    const std::vector<std::string>& texts) const {
  std::vector<std::string> all = {distributed::packed_texts(texts)};  // one packed list per rank
  for (std::size_t i = axes_.size(); i-- > 0;) {
    std::vector<std::string> joined;
    const std::string mine = distributed::packed_texts(all);
    for (const std::string& part : distributed::all_gather_texts(*mesh_.group(axes_[i]), mine)) {
      for (std::string& each : distributed::unpacked_texts(part)) joined.push_back(std::move(each));
    }
    all = std::move(joined);
  }
  std::vector<std::vector<std::string>> out;
  for (const std::string& each : all) out.push_back(distributed::unpacked_texts(each));
  return out;
}

DeviceMesh widest_mesh(std::span<const nn::Parameter> parameters) {
  DeviceMesh widest;
  for (const nn::Parameter& parameter : parameters) {
    const DeviceMesh mesh = distributed::mesh_of(parameter);
    if (!mesh.defined()) continue;
    if (!widest.defined() || mesh.size() > widest.size()) widest = mesh;
  }
  return widest;
}

DeviceMesh mesh_of_load(const DeviceMesh& given, std::span<const nn::Parameter> parameters,
                        const char* where) {
  const DeviceMesh mesh = given.defined() ? given : widest_mesh(parameters);
  TESSERA_CHECK(
      mesh.defined(), where,
      "no parameter is sharded, so nothing says which ranks load together: pass .mesh, or "
      ".broadcast_from_rank0 = false where every rank has the state");
  return mesh;
}

namespace {

using distributed::DeviceMesh;
using distributed::Placements;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Several row ranges that tensor parallelism sharded have boxes, but no cuts that explain them.
bool knows_cuts(const nn::ShardSpec& spec) { return spec.is_whole() || !spec.cuts.empty(); }

// If the spec does not tell: the dim in which local() is smaller than value().
int cut_dim(const nn::Parameter& parameter) {
  const Shape& part = parameter.spec().boxes.front().extent;
  const Shape& value = parameter.value_spec().boxes.front().extent;
  for (int d = 1; d < value.ndim(); ++d) {
    if (part[d] != value[d]) return d;
  }
  return 0;
}

// The placements of local() within value(): of the axes that sharded it after tensor parallelism.
Placements placements_in_value(const nn::Parameter& parameter, const DeviceMesh& mesh) {
  const nn::ShardSpec& spec = parameter.spec();
  const nn::ShardSpec& value = parameter.value_spec();
  nn::ShardSpec inner = nn::ShardSpec::whole(parameter.shape());
  if (knows_cuts(spec)) {
    inner.cuts.assign(spec.cuts.begin() + static_cast<std::ptrdiff_t>(value.cuts.size()),
                      spec.cuts.end());
  } else {
    // The innermost axis holds the shards; the axis before it holds parts of those (for example of
    // the optimizer).
    for (auto axis = spec.sharded_axes.rbegin(); axis != spec.sharded_axes.rend(); ++axis) {
      if (!contains(value.sharded_axes, *axis)) {
        inner.cuts.push_back({.axis = *axis, .dim = cut_dim(parameter)});
      }
    }
  }
  return distributed::placements_of(inner, mesh.axes());
}

// The elements that ranks hold, box after box, and their boxes.
struct Boxes {
  Tensor elements;  // [n]
  std::vector<nn::ShardBox> boxes;
};

// A box as it is sent: its offset, then its extent.
std::string packed(const nn::ShardBox& box) {
  std::vector<std::int64_t> numbers(box.offset.begin(), box.offset.end());
  numbers.insert(numbers.end(), box.extent.begin(), box.extent.end());
  return distributed::packed_numbers(numbers);
}

nn::ShardBox unpacked(const std::string& text) {
  const std::vector<std::int64_t> numbers = distributed::unpacked_numbers(text);
  const std::span<const std::int64_t> all(numbers);
  return {.offset = Shape(all.first(all.size() / 2)), .extent = Shape(all.last(all.size() / 2))};
}

// The boxes of all ranks along an axis, in rank order. Elements are sent padded to the largest
// count.
Boxes gathered(const Boxes& mine, const std::string& axis, const DeviceMesh& mesh) {
  distributed::ProcessGroup& group = *mesh.group(axis);
  std::vector<std::string> texts;
  for (const nn::ShardBox& box : mine.boxes) texts.push_back(packed(box));
  Boxes out;
  std::vector<std::int64_t> counts;
  std::int64_t sum = 0;
  for (const std::string& each :
       distributed::all_gather_texts(group, distributed::packed_texts(texts))) {
    std::int64_t& count = counts.emplace_back(0);
    for (const std::string& text : distributed::unpacked_texts(each)) {
      count += out.boxes.emplace_back(unpacked(text)).extent.numel();
    }
    sum += count;
  }
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  Tensor sent = mine.elements;
  if (sent.numel() < most) {
    sent = Tensor::empty({most}, mine.elements.options());
    copy_(sent.narrow(0, 0, mine.elements.numel()), mine.elements);
    fill_(sent.slice(0, mine.elements.numel(), most), 0);
  }
  const Tensor all = Tensor::empty({group.size(), most}, sent.options());
  distributed::all_gather(group, std::span(&sent, 1), std::span(&all, 1), "gather_whole " + axis);
  out.elements = Tensor::empty({sum}, sent.options());
  std::int64_t at = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    copy_(out.elements.narrow(0, at, counts[rank]),
          all.select(0, static_cast<std::int64_t>(rank)).narrow(0, 0, counts[rank]));
    at += counts[rank];
  }
  return out;
}

Tensor assembled(const Boxes& all, const Shape& global) {
  const Tensor whole = Tensor::empty(global, all.elements.options());
  std::int64_t at = 0;
  for (const nn::ShardBox& box : all.boxes) {
    Tensor place = whole;
    for (int d = 0; d < global.ndim(); ++d) {
      place = place.narrow(d, box.offset[d], box.extent[d]);
    }
    copy_(place, all.elements.narrow(0, at, place.numel()).view(place.shape()));
    at += place.numel();
  }
  return whole;
}

}  // namespace

std::vector<std::string> value_axes(const nn::Parameter& parameter) {
  const DeviceMesh mesh = distributed::mesh_of(parameter);
  if (!mesh.defined()) return {};
  const nn::ShardSpec& value = parameter.value_spec();
  std::vector<std::string> cut = value.sharded_axes;
  for (const nn::ShardCut& each : value.cuts) cut.push_back(each.axis);
  std::vector<std::string> out;
  for (const std::string& axis : mesh.axes()) {
    if (!contains(cut, axis)) out.push_back(axis);
  }
  return out;
}

Tensor gather_value(const nn::Parameter& parameter, const Tensor& part) {
  const DeviceMesh mesh = distributed::mesh_of(parameter);
  if (!mesh.defined()) return clone(part);
  return distributed::full_copy({.local = part,
                                 .global_shape = parameter.shape(),
                                 .mesh = mesh,
                                 .placements = placements_in_value(parameter, mesh)});
}

Tensor part_of_value(const nn::Parameter& parameter, const Tensor& value) {
  const DeviceMesh mesh = distributed::mesh_of(parameter);
  if (!mesh.defined()) return value;
  const distributed::Box box =
      distributed::local_box(parameter.shape(), placements_in_value(parameter, mesh),
                             {.shape = mesh.shape(), .coordinates = mesh.coordinates()});
  Tensor part = value;
  for (int d = 0; d < value.ndim(); ++d) part = part.narrow(d, box.offset[d], box.extent[d]);
  return part;
}

Tensor gather_whole(const nn::Parameter& parameter, const Tensor& part) {
  const DeviceMesh mesh = distributed::mesh_of(parameter);
  if (!mesh.defined()) return clone(part);
  const nn::ShardSpec& spec = parameter.spec();
  if (knows_cuts(spec)) {
    return distributed::full_copy({.local = part,
                                   .global_shape = spec.global_shape,
                                   .mesh = mesh,
                                   .placements = distributed::placements_of(parameter)});
  }
  Boxes all{.elements = contiguous(part).view({part.numel()}), .boxes = spec.boxes};
  for (auto axis = spec.sharded_axes.rbegin(); axis != spec.sharded_axes.rend(); ++axis) {
    all = gathered(all, *axis, mesh);
  }
  return assembled(all, spec.global_shape);
}

void copy_from_whole(const nn::Parameter& parameter, const Tensor& part, const Tensor& whole) {
  std::int64_t row = 0;
  for (const nn::ShardBox& box : parameter.spec().boxes) {
    Tensor from = whole;
    for (int d = 0; d < whole.ndim(); ++d) from = from.narrow(d, box.offset[d], box.extent[d]);
    const Tensor to = part.ndim() == 0 ? part : part.narrow(0, row, box.extent[0]);
    if (part.ndim() > 0) row += box.extent[0];
    copy_(to, to_device(from, to.device()));
  }
}

}  // namespace tessera::fsdp
