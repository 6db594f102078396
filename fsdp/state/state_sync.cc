// sync_module_states.
#include <algorithm>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tessera/fsdp/state/state.h"
#include "tessera/fsdp/state/whole_values.h"
#include "tessera/tensor/check.h"

namespace tessera::fsdp {
namespace {

using distributed::DeviceMesh;

constexpr const char* kWhere = "fsdp.sync_module_states";

struct Member {
  std::string name;
  std::variant<nn::Parameter, nn::Buffer> handle;
};

std::vector<Member> members_of(nn::Module& module) {
  std::vector<Member> out;
  for (const auto& [name, parameter] : module.named_parameters()) out.push_back({name, parameter});
  for (const auto& [name, buffer] : module.named_buffers()) out.push_back({name, buffer});
  return out;
}

// The axes along which ranks must hold the same: all but those that shard the parameter.
std::vector<std::string> axes_of(const Member& member, const DeviceMesh& mesh) {
  std::vector<std::string> axes = mesh.axes();
  const auto* parameter = std::get_if<nn::Parameter>(&member.handle);
  if (parameter == nullptr) return axes;
  for (const nn::ShardCut& cut : parameter->spec().cuts) std::erase(axes, cut.axis);
  for (const std::string& axis : parameter->spec().sharded_axes) std::erase(axes, axis);
  return axes;
}

std::string text_of(const Member& member) {
  const auto* parameter = std::get_if<nn::Parameter>(&member.handle);
  const Shape& shape =
      parameter ? parameter->spec().global_shape : std::get<nn::Buffer>(member.handle).shape();
  const DType dtype = std::visit([](const auto& handle) { return handle.dtype(); }, member.handle);
  return fmt::format("\"{}\" {} {}", member.name, dtype_name(dtype), shape.str());
}

// This rank's members that differ from rank 0's or do not exist there.
std::vector<std::string> misfits_of(const std::vector<Member>& members, const MeshRanks& ranks) {
  std::vector<std::string> mine, out;
  for (const Member& member : members) mine.push_back(text_of(member));
  const std::vector<std::string> first = ranks.broadcast_texts(mine);
  for (std::size_t i = 0; i < std::max(first.size(), mine.size()); ++i) {
    const auto text = [i](const std::vector<std::string>& list) {
      return i < list.size() ? list[i] : std::string("nothing");
    };
    if (text(first) != text(mine)) {
      out.push_back(fmt::format("{} where rank 0 has {}", text(mine), text(first)));
    }
  }
  return out;
}

// Members that other ranks expect from this rank, but that have no elements here.
std::vector<std::string> empty_of(const std::vector<Member>& members, const DeviceMesh& mesh) {
  std::vector<std::string> out;
  for (const Member& member : members) {
    const bool has_elements =
        std::visit([](const auto& handle) { return handle.is_materialized(); }, member.handle);
    if (has_elements || !MeshRanks(mesh, axes_of(member, mesh)).is_first()) continue;
    out.push_back(fmt::format("\"{}\"", member.name));
  }
  return out;
}

std::vector<std::string> texts_of_all(const std::vector<std::string>& mine,
                                      const MeshRanks& ranks) {
  std::vector<std::string> all;
  for (const std::vector<std::string>& each : ranks.all_gather_texts(mine)) {
    for (const std::string& text : each) {
      if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(text);
    }
  }
  return all;
}

void check_members(nn::Module& module, const std::vector<Member>& members, const DeviceMesh& mesh) {
  const MeshRanks ranks(mesh);
  const std::vector<std::string> misfits = texts_of_all(misfits_of(members, ranks), ranks);
  TESSERA_CHECK(misfits.empty(), kWhere,
                "{} is another model on some ranks: {}; build the same on all", module.type_name(),
                fmt::join(misfits, "; "));
  const std::vector<std::string> empty = texts_of_all(empty_of(members, mesh), ranks);
  TESSERA_CHECK_AS(StateError, empty.empty(), kWhere,
                   "the ranks that give their state to others have no elements for {}: call "
                   "nn::initialize(model) there, or load them",
                   fmt::join(empty, ", "));
}

const Tensor& elements_of(const Member& member) {
  if (const auto* parameter = std::get_if<nn::Parameter>(&member.handle)) {
    return parameter->local().tensor();
  }
  return std::get<nn::Buffer>(member.handle).tensor();
}

// The members of one coalesced broadcast.
struct Batch {
  MeshRanks ranks;
  std::vector<Tensor> tensors;
};

}  // namespace

void sync_module_states(nn::Module& module, const DeviceMesh& mesh) {
  TESSERA_CHECK(mesh.defined(), kWhere,
                "no mesh was given: pass that of the ranks to be made alike");
  std::vector<Member> members = members_of(module);
  check_members(module, members, mesh);
  std::map<std::string, Batch> batches;
  for (Member& member : members) {
    std::visit(
        [&](auto& handle) {
          if (!handle.is_materialized()) handle.set_name(member.name);
          handle.materialize(mesh.device());
        },
        member.handle);
    const std::vector<std::string> axes = axes_of(member, mesh);
    const Tensor& tensor = elements_of(member);
    const std::string kind = fmt::format("{} {} {}", fmt::join(axes, ","),
                                         dtype_name(tensor.dtype()), tensor.device().str());
    batches.try_emplace(kind, Batch{MeshRanks(mesh, axes), {}})
        .first->second.tensors.push_back(tensor);
  }
  for (const auto& [kind, batch] : batches) {
    batch.ranks.broadcast(batch.tensors, kWhere);
    for (const Tensor& tensor : batch.tensors) tensor.bump_version(kWhere);
  }
}

}  // namespace tessera::fsdp
