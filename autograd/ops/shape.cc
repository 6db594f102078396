#include "tessera/autograd/ops/shape.h"

#include <algorithm>
#include <optional>

#include "tessera/autograd/function.h"
#include "tessera/autograd/ops/internal.h"
#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"
#include "tessera/tensor/ops/create.h"

namespace tessera {
namespace {

std::vector<Tensor> tensors_of(const std::vector<Variable>& variables) {
  std::vector<Tensor> out;
  for (const Variable& x : variables) out.push_back(x.tensor());
  return out;
}

Variable record_list(const char* name, Tensor y, const std::vector<Variable>& inputs,
                     BackwardFunction backward) {
  return record_differentiable(name, {std::move(y)}, inputs, std::move(backward)).front();
}

// Gradients of parts, some of which may be undefined, with zeros in the place of those. Empty when
// no part has one.
std::vector<Variable> completed(const Gradients& gradients, const std::vector<Shape>& shapes) {
  const auto given = std::find_if(gradients.begin(), gradients.end(),
                                  [](const Variable& g) { return g.defined(); });
  if (given == gradients.end()) return {};
  std::vector<Variable> all = gradients;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) all[i] = Variable(zeros(shapes[i], given->tensor().options()));
  }
  return all;
}

// The parts as one tensor without a copy, if they lie beside each other along `dim` in one storage.
std::optional<Tensor> joined(const std::vector<Variable>& parts, int dim) {
  const Tensor& first = parts.front().tensor();
  const int d = normalize_dim(dim, first.ndim(), "split");
  if (first.dim(d) == 0) return std::nullopt;
  Shape strides = first.strides();
  if (parts.size() > 1) strides[d] = (parts[1].tensor().offset() - first.offset()) / first.dim(d);
  const auto lies_like = [&](const Tensor& part) {
    bool same = part.storage() == first.storage() && part.dtype() == first.dtype();
    for (int i = 0; i < part.ndim(); ++i)
      same = same && (part.dim(i) == 1 || part.strides()[i] == strides[i]);
    return same;
  };
  std::int64_t extent = 0;
  for (const Variable& each : parts) {
    const Tensor& part = each.tensor();
    if (each.requires_grad() || !lies_like(part)) return std::nullopt;
    if (part.offset() != first.offset() + extent * strides[d]) return std::nullopt;
    extent += part.dim(d);
  }
  return Tensor::over(first.storage(), first.shape().with(d, extent), strides, first.offset(),
                      first.dtype());
}

// `join` makes the gradient of x from those of its parts.
template <class Join>
std::vector<Variable> record_parts(const char* name, std::vector<Tensor> parts, const Variable& x,
                                   Join join) {
  if (parts.empty()) return {};
  std::vector<Shape> shapes;
  for (const Tensor& part : parts) shapes.push_back(part.shape());
  return record_differentiable(
      name, std::move(parts), {&x, 1},
      [join, shapes = std::move(shapes)](const Gradients& gradients, const BackwardContext&) {
        const std::vector<Variable> all = completed(gradients, shapes);
        return Gradients{all.empty() ? Variable() : join(all)};
      });
}

std::vector<Variable> record_split(const char* name, std::vector<Tensor> parts, const Variable& x,
                                   int dim) {
  return record_parts(name, std::move(parts), x, [dim](const std::vector<Variable>& all) {
    std::optional<Tensor> whole = joined(all, dim);
    return whole ? Variable(std::move(*whole)) : cat(all, dim);
  });
}

// The derivative of operations that are linear and whose transpose is at hand.
template <class Transpose>
Variable record_linear(const char* name, Tensor y, const Variable& x, Transpose transpose) {
  return record_twice(
      name, std::move(y), {x},
      [transpose](const Variable& dy, const BackwardContext&) { return Gradients{transpose(dy)}; });
}

// Sums what repeat made of each element.
Variable fold_repeats(Variable dy, const Shape& from, const Shape& repeats) {
  const int lead = repeats.ndim() - from.ndim();
  for (int d = repeats.ndim() - 1; d >= 0; --d) {
    if (repeats[d] == 1) continue;
    const Shape shape = dy.shape().with(d, d < lead ? 1 : from[d - lead]);
    std::int64_t outer = 1, inner = 1;
    for (int i = 0; i < d; ++i) outer *= shape[i];
    for (int i = d; i < shape.ndim(); ++i) inner *= shape[i];
    const Variable parts = reshape(dy, {outer, repeats[d], inner});
    dy = reshape(sum(parts, {1}), shape);
  }
  return reshape(dy, from);
}

}  // namespace

Variable cat(const std::vector<Variable>& variables, int dim) {
  const Tensor y = cat(tensors_of(variables), dim);
  std::vector<std::int64_t> sizes;
  for (const Variable& x : variables) sizes.push_back(x.dim(dim));
  return record_list("cat", y, variables,
                     [dim, sizes](const Gradients& dy, const BackwardContext& context) {
                       Gradients gradients(sizes.size());
                       std::int64_t start = 0;
                       for (std::size_t i = 0; i < sizes.size() && dy[0].defined(); ++i) {
                         const std::int64_t end = start + sizes[i];
                         if (context.needs(static_cast<int>(i)))
                           gradients[i] = slice(dy[0], dim, start, end);
                         start = end;
                       }
                       return gradients;
                     });
}

Variable stack(const std::vector<Variable>& variables, int dim) {
  const Tensor y = stack(tensors_of(variables), dim);
  const int d = normalize_dim(dim, y.ndim(), "stack");
  return record_list(
      "stack", y, variables,
      [d, count = variables.size()](const Gradients& dy, const BackwardContext& context) {
        Gradients gradients(count);
        for (std::size_t i = 0; i < count && dy[0].defined(); ++i) {
          const auto at = static_cast<std::int64_t>(i);
          if (context.needs(static_cast<int>(i)))
            gradients[i] = reshape(slice(dy[0], d, at, at + 1), dy[0].shape().without(d));
        }
        return gradients;
      });
}

std::vector<Variable> split(const Variable& x, const std::vector<std::int64_t>& sizes, int dim) {
  return record_split("split", split(x.tensor(), sizes, dim), x, dim);
}

std::vector<Variable> split(const Variable& x, std::int64_t size, int dim) {
  return record_split("split", split(x.tensor(), size, dim), x, dim);
}

std::vector<Variable> chunk(const Variable& x, std::int64_t chunks, int dim) {
  return record_split("chunk", chunk(x.tensor(), chunks, dim), x, dim);
}

std::vector<Variable> unbind(const Variable& x, int dim) {
  return record_parts("unbind", unbind(x.tensor(), dim), x,
                      [d = normalize_dim(dim, x.ndim(), "unbind")](
                          const std::vector<Variable>& all) { return stack(all, d); });
}

Variable pad(const Variable& x, const std::vector<Padding>& padding, double value) {
  std::vector<Padding> undo = padding;
  for (Padding& p : undo) p = {.before = -p.before, .after = -p.after};
  return record_linear("pad", pad(x.tensor(), padding, value), x,
                       [undo](const Variable& dy) { return pad(dy, undo); });
}

Variable roll(const Variable& x, std::int64_t shift, int dim) {
  return record_linear("roll", roll(x.tensor(), shift, dim), x,
                       [shift, dim](const Variable& dy) { return roll(dy, -shift, dim); });
}

Variable flip(const Variable& x, const DimList& dims) {
  return record_linear("flip", flip(x.tensor(), dims), x,
                       [dims](const Variable& dy) { return flip(dy, dims); });
}

Variable repeat(const Variable& x, const Shape& repeats) {
  return record_linear(
      "repeat", repeat(x.tensor(), repeats), x,
      [repeats, from = x.shape()](const Variable& dy) { return fold_repeats(dy, from, repeats); });
}

Variable tile(const Variable& x, const Shape& repeats) {
  Shape all = repeats;
  while (all.ndim() < x.ndim()) all = all.inserted(0, 1);
  return record_linear(
      "tile", tile(x.tensor(), repeats), x,
      [all, from = x.shape()](const Variable& dy) { return fold_repeats(dy, from, all); });
}

Variable repeat_interleave(const Variable& x, std::int64_t count, int dim) {
  const Tensor y = repeat_interleave(x.tensor(), count, dim);
  const int d = normalize_dim(dim, x.ndim(), "repeat_interleave");
  return record_linear("repeat_interleave", y, x, [count, d, from = x.shape()](const Variable& dy) {
    std::int64_t outer = 1, inner = 1;
    for (int i = 0; i <= d; ++i) outer *= from[i];
    for (int i = d + 1; i < from.ndim(); ++i) inner *= from[i];
    return reshape(sum(reshape(dy, {outer, count, inner}), {1}), from);
  });
}

Variable tril(const Variable& x, std::int64_t diagonal) {
  return record_linear("tril", tril(x.tensor(), diagonal), x,
                       [diagonal](const Variable& dy) { return tril(dy, diagonal); });
}

Variable triu(const Variable& x, std::int64_t diagonal) {
  return record_linear("triu", triu(x.tensor(), diagonal), x,
                       [diagonal](const Variable& dy) { return triu(dy, diagonal); });
}

}  // namespace tessera
