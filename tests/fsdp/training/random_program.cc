#include "tessera/tests/fsdp/training/random_program.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "tessera/tensor/device.h"

namespace tessera::testing {
namespace {

const char* kind_text(NodeKind kind) {
  switch (kind) {
    case NodeKind::kGelu:
      return "gelu";
    case NodeKind::kLinear:
      return "linear";
    case NodeKind::kMlp:
      return "mlp";
    case NodeKind::kNorm:
      return "norm";
    case NodeKind::kTied:
      return "tied";
    case NodeKind::kSequence:
      return "sequence";
    case NodeKind::kResidual:
      return "residual";
    case NodeKind::kDetached:
      return "detached";
    case NodeKind::kReuse:
      return "reuse";
    case NodeKind::kUnused:
      return "unused";
    case NodeKind::kSometimes:
      return "sometimes";
  }
  return "?";
}

bool has_children(NodeKind kind) {
  return kind == NodeKind::kSequence || kind == NodeKind::kResidual || kind == NodeKind::kDetached;
}

bool runs_once_everywhere(NodeKind kind) {
  return kind == NodeKind::kLinear || kind == NodeKind::kMlp || kind == NodeKind::kNorm;
}

class Settler {
 public:
  void settle(NodePlan& node, bool in_list) {
    node.id = next_id_++;
    if (!has_children(node.kind)) {
      node.children.clear();
      node.recompute = node.list = false;
      if (node.kind == NodeKind::kReuse) return aim(node);
      if (in_list) node.wrap = Wrap::kNone;
      if (!in_list && runs_once_everywhere(node.kind)) candidates_.push_back(&node);
      return;
    }
    node.list = node.list && node.children.size() >= 2 &&
                runs_once_everywhere(node.children[0].kind) &&
                runs_once_everywhere(node.children[1].kind);
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      settle(node.children[i], node.list && i < 2);
    }
  }

 private:
  // Only modules that were built before can be used again.
  void aim(NodePlan& node) {
    node.wrap = Wrap::kNone;
    if (candidates_.empty()) {
      node.kind = NodeKind::kGelu;
      return;
    }
    NodePlan& target = *candidates_[static_cast<std::size_t>(node.number) % candidates_.size()];
    if (target.wrap == Wrap::kNone) target.wrap = Wrap::kShard;
    node.target = target.id;
  }

  std::vector<NodePlan*> candidates_;
  int next_id_ = 0;
};

std::string node_text(const NodePlan& node) {
  std::string out = kind_text(node.kind);
  if (node.kind == NodeKind::kMlp) out += fmt::format(":{}", node.number);
  if (node.kind == NodeKind::kReuse) out += fmt::format(":#{}", node.target);
  out += fmt::format("#{}", node.id);
  std::string marks;
  if (node.wrap == Wrap::kShard) marks += fmt::format(" shard(reshard {})", node.reshard);
  if (node.wrap == Wrap::kReplicate) marks += " replicate";
  if (node.frozen_weights) marks += " frozen-weights";
  if (node.frozen_biases) marks += " frozen-biases";
  if (node.list) marks += fmt::format(" list(reshard {})", node.reshard);
  if (node.recompute) marks += " recompute";
  if (!marks.empty()) out += "[" + marks.substr(1) + "]";
  if (node.children.empty()) return out;
  out += "(";
  for (const NodePlan& child : node.children) {
    if (out.back() != '(') out += " ";
    out += node_text(child);
  }
  return out + ")";
}

const char* forwards_text(Forwards forwards) {
  switch (forwards) {
    case Forwards::kOne:
      return "";
    case Forwards::kTwoSummed:
      return ", two summed";
    case Forwards::kTwoReversed:
      return ", two reversed";
  }
  return "?";
}

std::string step_text(const StepPlan& step) {
  std::string out = step.evaluate_before ? "evaluate " : "";
  if (step.give_up_before) out += "give-up ";
  if (step.open_before) out += "open ";
  for (const MicroPlan& micro : step.micros) {
    out += fmt::format("pass({} rows{}{}{}{}) ", micro.rows, forwards_text(micro.forwards),
                       micro.sync ? "" : ", no sync", micro.all_reduce ? "" : ", no all-reduce",
                       micro.reshard_after_backward ? "" : ", kept");
  }
  return out + (step.clip ? "clip; " : "; ");
}

const char* precision_text(Precision precision) {
  switch (precision) {
    case Precision::kStored:
      return "f64";
    case Precision::kF32Values:
      return "f32 values";
    case Precision::kF32ValuesF64Gradients:
      return "f32 values, f64 gradients";
  }
  return "?";
}

}  // namespace

void settle(Program& program) {
  Settler().settle(program.body, /*in_list=*/false);
  program.replicas = program.world % program.replicas == 0 ? program.replicas : program.world;
  program.over_replicas = program.over_replicas && program.replicas > 1 && !program.cut_dim1;
  // A penalty on shards that stay on the host cannot be added to a loss on a GPU.
  if (!default_device().is_cpu()) program.penalty = program.penalty && !program.offload;
  if (program.steps.empty()) program.steps.emplace_back();
  for (StepPlan& step : program.steps) {
    if (step.micros.empty()) step.micros.emplace_back();
    if (program.in_backward) {
      step.micros.resize(1);
      step.micros.back().forwards = Forwards::kOne;
      step.clip = false;
    }
    step.micros.back().sync = step.micros.back().all_reduce = true;
  }
}

std::string describe(const Program& p) {
  std::string out = "model: " + node_text(p.body) + "\n";
  out += fmt::format("world {} ({} replicas{}), compute {}, {}{}, root {}(reshard {})", p.world,
                     p.replicas, p.over_replicas ? ", optimizer over them" : "",
                     p.queued ? "queued" : "inline", precision_text(p.precision),
                     p.exempt_norms ? " without norms" : "",
                     p.root_replicated ? "replicate" : "shard", p.root_reshard);
  out += fmt::format(", ahead {}/{}, {} reduce buffers", p.forward_prefetch,
                     p.backward_prefetch ? "pre" : "none", p.reduce_buffers);
  if (p.listed > 0) out += fmt::format(", lists of {}", p.listed);
  const std::pair<bool, const char*> marks[] = {
      {p.offload, "offload"},
      {p.cut_dim1, "dim 1"},
      {p.reduce_unused, "unused reduced"},
      {p.separate_reduces, "reduces in a group of their own"},
      {p.in_backward, "optimizer in backward"},
      {p.optimizer_event, "optimizer's event"},
      {p.penalty, "penalty"},
      {p.input_gradients, "input gradients"}};
  for (const auto& [on, text] : marks) {
    if (on) out += std::string(", ") + text;
  }
  out += "\n";
  for (const StepPlan& step : p.steps) out += step_text(step);
  return out;
}

}  // namespace tessera::testing
