#include "tessera/distributed/tensor_parallel/parallel_layouts.h"

#include <algorithm>
#include <span>
#include <utility>
#include <variant>

#include "tessera/autograd/function.h"
#include "tessera/nn/mesh/mesh_ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera::distributed::detail {
namespace {
constexpr const char* kWhere = "distributed.parallelize";
}

int dim_of(const Placement& shard, const Variable& x) {
  const int dim = std::get<Shard>(shard).dim;
  const int wrapped = dim < 0 ? dim + x.ndim() : dim;
  TESSERA_CHECK(wrapped >= 0 && wrapped < x.ndim(), kWhere,
                "a tensor of shape {} has no dim {} to be {} along", x.shape().str(), dim,
                str(shard));
  return wrapped;
}

void ParallelLayouts::check_even(const Variable& x, int dim) const {
  TESSERA_CHECK(x.dim(dim) % size() == 0, kWhere,
                "dim {} of {} cannot be cut in equal parts for {} ranks: pad it to a multiple", dim,
                x.shape().str(), size());
}

Variable ParallelLayouts::change(const Variable& x, const Placement& from, const Placement& to,
                                 std::int64_t extent) const {
  if (is_shard(from) && is_shard(to) && dim_of(from, x) == dim_of(to, x)) return x;
  Variable y = x;
  if (is_shard(from))
    y = nn::gather_from_ranks(x, mesh_, axis_, {.dim = dim_of(from, x), .extent = extent});
  if (!is_shard(to)) return y;
  check_even(y, dim_of(to, y));
  return nn::split_to_ranks(y, mesh_, axis_, dim_of(to, y));
}

Variable ParallelLayouts::own_features(const Variable& x, const Placement& from) const {
  const int last = x.ndim() - 1;
  if (is_shard(from) && dim_of(from, x) == last) return x;
  return nn::split_to_ranks(change(x, from, Replicate{}), mesh_, axis_, last);
}

Variable ParallelLayouts::for_own_work(const Variable& x, const Placement& from) {
  for (Prepared& prepared : prepared_) {
    if (!prepared.whole.same_as(x)) continue;
    if (prepared.working.defined()) return prepared.working;
    const Variable working = working_copy(prepared);
    // A Variable made while grad mode is off cannot be used when it is on.
    if (working.requires_grad() == prepared.source.requires_grad()) prepared.working = working;
    return working;
  }
  const Placement layout = layout_of(x, from);
  if (!is_shard(layout)) return nn::copy_to_ranks(x, mesh_, axis_);
  return nn::all_gather(x, mesh_, axis_, {.dim = dim_of(layout, x)});
}

// The elements were gathered for `whole` already; only the gradient is another.
Variable ParallelLayouts::working_copy(const Prepared& prepared) const {
  const Variable& source = prepared.source;
  if (!is_shard(prepared.from)) return nn::copy_to_ranks(source, mesh_, axis_);
  const auto backward = [mesh = mesh_, axis = axis_, dim = dim_of(prepared.from, source),
                         shape = prepared.whole.shape(),
                         options = prepared.whole.tensor().options()](const Gradients& dy,
                                                                      const BackwardContext&) {
    const Variable whole = dy[0].defined() ? dy[0] : Variable(zeros(shape, options));
    return Gradients{nn::reduce_scatter(whole, mesh, axis, dim)};
  };
  return record_differentiable("nn.all_gather", {prepared.whole.tensor()}, std::span(&source, 1),
                               backward)[0];
}

Variable ParallelLayouts::sum_of_terms(const Variable& x, const Placement& to) const {
  if (!is_shard(to)) return nn::reduce_from_ranks(x, mesh_, axis_);
  const int dim = dim_of(to, x);
  check_even(x, dim);
  return nn::reduce_scatter(x, mesh_, axis_, dim);
}

Variable ParallelLayouts::summed_gradient(const Variable& gradient) const {
  return nn::reduce_from_ranks(gradient, mesh_, axis_);
}

void ParallelLayouts::remember(const Variable& x, const Placement& layout) {
  std::erase_if(notes_, [&x](const Note& note) {
    const auto of = note.of.lock();
    return of == nullptr || of == x.impl();
  });
  notes_.push_back({x.impl(), layout});
}

Placement ParallelLayouts::layout_of(const Variable& x, const Placement& otherwise) const {
  const auto found = std::find_if(notes_.begin(), notes_.end(),
                                  [&x](const Note& note) { return note.of.lock() == x.impl(); });
  return found == notes_.end() ? otherwise : found->layout;
}

Variable ParallelLayouts::prepare(const Variable& x, const Placement& from, const Placement& to,
                                  const void* scope) {
  const Placement layout = layout_of(x, from);
  const Variable y = change(x, layout, to);
  if (!is_shard(to))
    prepared_.push_back({.whole = y, .source = x, .from = layout, .working = {}, .scope = scope});
  return y;
}

void ParallelLayouts::forget(const void* scope) {
  std::erase_if(prepared_, [scope](const Prepared& prepared) { return prepared.scope == scope; });
}

}  // namespace tessera::distributed::detail
