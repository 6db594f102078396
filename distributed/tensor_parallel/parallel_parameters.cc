#include <variant>

#include "tessera/distributed/parameters/parameters.h"
#include "tessera/distributed/tensor_parallel/parallel_styles.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed::detail {
namespace {

std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// This rank's part of several row ranges of a parameter, each cut evenly: projections that stand
// one below the other.
nn::ShardSpec stacked_rows(const Shape& global, const std::vector<std::int64_t>& rows,
                           const DeviceMesh& mesh) {
  nn::ShardSpec spec = nn::ShardSpec::whole(global);
  const std::string& axis = mesh.axes().front();
  const std::int64_t ranks = mesh.size(axis), rank = mesh.coordinate(axis);
  if (ranks == 1) return spec;
  spec.boxes.clear();
  spec.sharded_axes = {axis};
  std::int64_t first = 0;
  for (const std::int64_t count : rows) {
    nn::ShardBox box{.offset = Shape::filled(global.ndim(), 0), .extent = global};
    box.extent[0] = count / ranks;
    box.offset[0] = first + rank * box.extent[0];
    spec.boxes.push_back(box);
    first += count;
  }
  return spec;
}

class Uses {
 public:
  Uses(const StyledModule& styled, const DeviceMesh& mesh) : styled_(styled), mesh_(mesh) {}
  std::vector<ParameterUse> take() { return std::move(uses_); }

  void operator()(const ColwiseParallel&) {
    if (is_embedding()) return cut("weight", *styled_.module, 1);
    cut("weight", *styled_.module, 0);
    cut("bias", *styled_.module, 0);
  }
  void operator()(const RowwiseParallel& style) {
    if (is_embedding()) return cut("weight", *styled_.module, 0);
    row_wise(*styled_.module, styled_.name, style.output_layout);
  }
  void operator()(const HeadParallel& style) {
    auto& attention = dynamic_cast<nn::MultiheadAttention&>(*styled_.module);
    const std::int64_t group = attention.heads_per_kv_head();
    for (nn::NamedParameter& own : attention.own_parameters()) {
      const Shape& global = own.parameter.spec().global_shape;
      std::vector<std::int64_t> rows = {global[0]};
      if (own.name.rfind("in_proj", 0) == 0) {
        const std::int64_t kv_rows = global[0] / (group + 2);
        rows = {group * kv_rows, kv_rows, kv_rows};
      }
      uses_.push_back({.name = joined(styled_.name, own.name),
                       .parameter = own.parameter,
                       .cut = rows.size() == 1 ? shard_spec(global, mesh_, {Shard{0}})
                                               : stacked_rows(global, rows, mesh_)});
    }
    row_wise(attention.out_proj(), joined(styled_.name, "out_proj"), style.output_layout);
  }
  void operator()(const SequenceParallel&) {
    for (nn::NamedParameter& own : styled_.module->own_parameters()) {
      uses_.push_back({.name = joined(styled_.name, own.name),
                       .parameter = own.parameter,
                       .sums_gradient = true});
    }
  }
  void operator()(const PrepareModuleInput&) {}
  void operator()(const PrepareModuleOutput&) {}

 private:
  bool is_embedding() const {
    return dynamic_cast<const nn::Embedding*>(styled_.module) != nullptr;
  }
  void cut(const std::string& name, const nn::Module& module, int dim) {
    cut(name, module, styled_.name, dim);
  }
  void cut(const std::string& name, const nn::Module& module, const std::string& prefix, int dim) {
    for (nn::NamedParameter& own : module.own_parameters()) {
      if (own.name != name) continue;
      uses_.push_back({.name = joined(prefix, name),
                       .parameter = own.parameter,
                       .cut = shard_spec(own.parameter.spec().global_shape, mesh_, {Shard{dim}})});
    }
  }
  // A bias is added to parts of the sum where that is scattered: its gradient is in terms then.
  void row_wise(const nn::Module& linear, const std::string& prefix, const Placement& output) {
    cut("weight", linear, prefix, 1);
    for (nn::NamedParameter& own : linear.own_parameters()) {
      if (own.name != "bias") continue;
      uses_.push_back({.name = joined(prefix, own.name),
                       .parameter = own.parameter,
                       .sums_gradient = is_shard(output)});
    }
  }

  const StyledModule& styled_;
  const DeviceMesh& mesh_;
  std::vector<ParameterUse> uses_;
};

}  // namespace

std::vector<nn::Module*> styled_children(const StyledModule& styled) {
  if (!std::holds_alternative<HeadParallel>(*styled.style)) return {};
  return {&dynamic_cast<nn::MultiheadAttention&>(*styled.module).out_proj()};
}

std::vector<ParameterUse> parameter_uses(const StyledModule& styled, const DeviceMesh& mesh) {
  Uses uses(styled, mesh);
  std::visit(uses, *styled.style);
  return uses.take();
}

}  // namespace tessera::distributed::detail
