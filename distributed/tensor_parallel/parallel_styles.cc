#include "tessera/distributed/tensor_parallel/parallel_styles.h"

#include <utility>
#include <variant>

#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/embedding.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/norm.h"
#include "tessera/nn/layers/transformer/attention.h"
#include "tessera/tensor/check.h"

namespace tessera::distributed::detail {
namespace {

constexpr const char* kWhere = "distributed.parallelize";

using Layouts = std::shared_ptr<ParallelLayouts>;
using Change = std::function<Variable(const Variable&)>;

// Each Variable among the arguments is replaced; one that stands there twice stays one.
void change_arguments(nn::Module& module, Change change) {
  module.register_forward_pre_hook(
      [change = std::move(change)](nn::Module&, const nn::VisitVariables& arguments) {
        std::vector<std::pair<Variable, Variable>> known;
        arguments([&](Variable& x) {
          for (const auto& [from, to] : known) {
            if (!from.same_as(x)) continue;
            x = to;
            return;
          }
          known.emplace_back(x, change(x));
          x = known.back().second;
        });
      });
}

// Before the existing hooks: these see the result that the module returns to its callers.
void change_result(nn::Module& module, Change change) {
  module.register_forward_hook(
      [change = std::move(change)](nn::Module&, const nn::VisitVariables* results) {
        (*results)([&](Variable& y) { y = change(y); });
      },
      {.first = true});
}

// `change`, and the layout remembered where that is asked for.
Change noting(const Layouts& layouts, const Placement& layout, bool use_local_output,
              Change change) {
  if (use_local_output) return change;
  return [layouts, layout, change = std::move(change)](const Variable& x) {
    const Variable y = change(x);
    layouts->remember(y, layout);
    return y;
  };
}

// The norms count their dims from the back, and a dim that is one of them cannot be cut.
int normalized_dims(nn::Module& module) {
  if (dynamic_cast<nn::Dropout*>(&module) != nullptr) return 0;
  const auto own = module.own_parameters();
  return own.empty() ? 1 : own.front().parameter.shape().ndim();
}

class Apply {
 public:
  Apply(const StyledModule& styled, const Layouts& layouts) : styled_(styled), layouts_(layouts) {}

  void operator()(const ColwiseParallel& style) const {
    std::int64_t features = 0;
    if (auto* embedding = dynamic_cast<nn::Embedding*>(styled_.module)) {
      features = embedding->weight().spec().global_shape[1];
    } else {
      features = linear().weight().spec().global_shape[0];
      change_arguments(*styled_.module, own_work(style.input_layout));
    }
    change_result(*styled_.module, noting(layouts_, style.output_layout, style.use_local_output,
                                          [layouts = layouts_, to = style.output_layout,
                                           features](const Variable& y) {
                                            return layouts->change(y, Shard{-1}, to, features);
                                          }));
  }

  void operator()(const RowwiseParallel& style) const {
    const Change add_up = sum(style.output_layout);
    if (dynamic_cast<nn::Embedding*>(styled_.module) != nullptr) {
      change_result(*styled_.module,
                    noting(layouts_, style.output_layout, style.use_local_output, add_up));
      return;
    }
    row_wise(linear(), style);
  }

  void operator()(const HeadParallel& style) const {
    auto& attention = dynamic_cast<nn::MultiheadAttention&>(*styled_.module);
    change_arguments(attention, own_work(style.input_layout));
    row_wise(attention.out_proj(), {.output_layout = style.output_layout});
    attention.register_forward_hook(
        [layouts = layouts_, style](nn::Module&, const nn::VisitVariables* results) {
          int count = 0;
          (*results)([&](Variable& y) {
            TESSERA_CHECK(++count == 1, kWhere,
                          "attention weights of a HeadParallel layer are asked for, and a rank has "
                          "only those of its heads; leave need_weights false");
            if (!style.use_local_output) layouts->remember(y, style.output_layout);
          });
        },
        {.first = true});
  }

  void operator()(const SequenceParallel& style) const {
    const int dim = style.sequence_dim, norm_dims = normalized_dims(*styled_.module);
    if (auto* dropout = dynamic_cast<nn::Dropout*>(styled_.module))
      dropout->set_split({.dim = dim, .parts = layouts_->size(), .part = layouts_->rank()});
    change_arguments(*styled_.module, [layouts = layouts_, dim, norm_dims](const Variable& x) {
      TESSERA_CHECK(dim_of(Shard{dim}, x) < x.ndim() - norm_dims, kWhere,
                    "sequence_dim {} of an input {} is one of the {} dims that are normalised", dim,
                    x.shape().str(), norm_dims);
      return layouts->change(x, layouts->layout_of(x, Shard{dim}), Shard{dim});
    });
    note_result(*styled_.module, Shard{dim}, style.use_local_output);
  }

  void operator()(const PrepareModuleInput& style) const {
    styled_.module->register_forward_pre_hook(
        [layouts = layouts_, style](nn::Module& module, const nn::VisitVariables& arguments) {
          each(style.inputs, arguments, [&](Variable& x, const LayoutChange& change) {
            x = layouts->prepare(x, change.from, change.to, &module);
          });
        });
    styled_.module->register_forward_hook(
        [layouts = layouts_](nn::Module& module, const nn::VisitVariables*) {
          layouts->forget(&module);
        },
        {.always = true});
  }

  void operator()(const PrepareModuleOutput& style) const {
    styled_.module->register_forward_hook(
        [layouts = layouts_, style](nn::Module&, const nn::VisitVariables* results) {
          each(style.outputs, *results, [&](Variable& y, const LayoutChange& change) {
            y = layouts->change(y, layouts->layout_of(y, change.from), change.to);
            if (!style.use_local_output) layouts->remember(y, change.to);
          });
        },
        {.first = true});
  }

 private:
  nn::Linear& linear() const { return dynamic_cast<nn::Linear&>(*styled_.module); }

  Change own_work(const Placement& from) const {
    return [layouts = layouts_, from](const Variable& x) { return layouts->for_own_work(x, from); };
  }
  Change sum(const Placement& to) const {
    return [layouts = layouts_, to](const Variable& x) { return layouts->sum_of_terms(x, to); };
  }

  void row_wise(nn::Linear& linear, const RowwiseParallel& style) const {
    const Placement from = style.input_layout.value_or(Shard{-1});
    change_arguments(linear, [layouts = layouts_, from](const Variable& x) {
      return layouts->own_features(x, layouts->layout_of(x, from));
    });
    linear.set_before_bias(sum(style.output_layout));
    note_result(linear, style.output_layout, style.use_local_output);
  }

  void note_result(nn::Module& module, const Placement& layout, bool use_local_output) const {
    if (use_local_output) return;
    change_result(module, [layouts = layouts_, layout](const Variable& y) {
      layouts->remember(y, layout);
      return y;
    });
  }

  // The Variables that have an entry. It is an error if the numbers differ.
  template <class Function>
  static void each(const std::vector<std::optional<LayoutChange>>& changes,
                   const nn::VisitVariables& variables, const Function& function) {
    std::size_t i = 0;
    variables([&](Variable& x) {
      if (i < changes.size() && changes[i]) function(x, *changes[i]);
      ++i;
    });
    TESSERA_CHECK(i == changes.size(), kWhere,
                  "there are {} Variables, and layouts for {}: give one for each, or nullopt", i,
                  changes.size());
  }

  const StyledModule& styled_;
  Layouts layouts_;
};

}  // namespace

void apply_style(const StyledModule& styled, const std::shared_ptr<ParallelLayouts>& layouts) {
  std::visit(Apply(styled, layouts), *styled.style);
}

}  // namespace tessera::distributed::detail
