#include <map>

#include "tessera/nn/module.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/memory/transfer.h"
#include "tessera/tensor/ops/elementwise.h"

namespace tessera::nn {
namespace {

template <class Member>
using ByName = std::map<std::string, Member>;

ByName<Parameter> parameters_of(const Module& module) {
  ByName<Parameter> out;
  for (const NamedParameter& named : module.named_parameters()) {
    out.emplace(named.name, named.parameter);
  }
  return out;
}

ByName<Buffer> buffers_of(const Module& module) {
  ByName<Buffer> out;
  for (const NamedBuffer& named : module.named_buffers()) out.emplace(named.name, named.buffer);
  return out;
}

// What keeps `from` from being copied into `to`; empty when nothing does.
std::string difference(const Parameter& from, const Parameter& to) {
  if (from.spec().global_shape != to.spec().global_shape) {
    return fmt::format("{} against {}", from.spec().global_shape.str(),
                       to.spec().global_shape.str());
  }
  return from.spec() == to.spec() ? "" : "sharded differently";
}

std::string difference(const Buffer& from, const Buffer& to) {
  if (from.shape() == to.shape()) return "";
  return fmt::format("{} against {}", from.shape().str(), to.shape().str());
}

template <class Member>
void add_differences(const ByName<Member>& from, const ByName<Member>& to, std::string& out) {
  const auto add = [&out](const std::string& name, const std::string& text) {
    if (!text.empty()) out += fmt::format("{}\"{}\" {}", out.empty() ? "" : "; ", name, text);
  };
  for (const auto& [name, member] : from) {
    const auto reference = to.find(name);
    add(name, reference == to.end() ? "only in the source" : difference(member, reference->second));
  }
  for (const auto& [name, member] : to) {
    if (from.count(name) == 0) add(name, "only in the target");
  }
}

}  // namespace

void copy_state(const Module& from, Module& to) {
  const auto parameters = parameters_of(from);
  const auto buffers = buffers_of(from);
  auto target_parameters = parameters_of(to);
  auto target_buffers = buffers_of(to);
  std::string text;
  add_differences(parameters, target_parameters, text);
  add_differences(buffers, target_buffers, text);
  TESSERA_CHECK(text.empty(), "nn.copy_state", "{} and {} are not alike: {}", from.type_name(),
                to.type_name(), text);
  for (const auto& [name, source] : parameters) {
    const Tensor values = source.local().tensor();
    Parameter& target = target_parameters.at(name);
    target.materialize(values.device());
    copy_(target.local().tensor(), to_device(values, target.local().device()));
  }
  for (const auto& [name, source] : buffers) {
    Buffer& target = target_buffers.at(name);
    target.materialize(source.tensor().device());
    copy_(target.tensor(), to_device(source.tensor(), target.tensor().device()));
  }
}

}  // namespace tessera::nn
