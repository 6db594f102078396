#include "tessera/tensor/ops/attention.h"

#include <cmath>

#include "tessera/tensor/determinism.h"
#include "tessera/tensor/kernels/attention.h"
#include "tessera/tensor/kernels/launch.h"
#include "tessera/tensor/kernels/resolve.h"
#include "tessera/tensor/ops/create.h"
#include "tessera/tensor/ops/internal/op_checks.h"

namespace tessera {
namespace {

constexpr const char* kForward = "scaled_dot_product_attention";
constexpr const char* kBackward = "scaled_dot_product_attention_backward";

// Checks one operand's dtype, device and number of dims.
void check_like(const char* where, const Tensor& q, const char* name, const Tensor& x) {
  ops::check_defined(where, name, x);
  ops::check_same_dtype(where, q, x);
  ops::check_same_device(where, q, x);
  TESSERA_CHECK(x.ndim() == q.ndim() && q.ndim() >= 3, where,
                "needs q, k and v [.., heads, length, dim] with equally many dims, at least 3; got "
                "q {} and {} {}",
                q.shape().str(), name, x.shape().str());
}

void check_inputs(const char* where, const AttentionInputs& in) {
  ops::check_defined(where, "q", in.q);
  ops::check_floating(where, in.q);
  check_like(where, in.q, "k", in.k);
  check_like(where, in.q, "v", in.v);
  const Shape &q = in.q.shape(), &k = in.k.shape(), &v = in.v.shape();
  const int last = q.ndim() - 1;
  for (int d = 0; d < last - 2; ++d) {
    TESSERA_CHECK(q[d] == k[d] && q[d] == v[d], where,
                  "q {}, k {} and v {} differ in dim {}; all dims before the heads must agree",
                  q.str(), k.str(), v.str(), d);
  }
  TESSERA_CHECK(k[last - 2] == v[last - 2] && k[last - 1] == v[last - 1], where,
                "k {} and v {} have other heads or lengths; they must agree", k.str(), v.str());
  TESSERA_CHECK(k[last - 2] > 0 ? q[last - 2] % k[last - 2] == 0 : q[last - 2] == 0, where,
                "q has {} heads, k and v {}; those of q must be a multiple of theirs", q[last - 2],
                k[last - 2]);
  TESSERA_CHECK(q[last] == k[last] && q[last] > 0 && v[last] > 0, where,
                "the last dims of q {}, k {} and v {} are {}, {} and {}; q's and k's must agree "
                "and none may be 0",
                q.str(), k.str(), v.str(), q[last], k[last], v[last]);
}

// True if the extents of `x`, from the back, are 1 or those of `shape`.
bool expands_to(const Shape& x, const Shape& shape) {
  const int lead = shape.ndim() - x.ndim();
  bool fits = lead >= 0;
  for (int d = 0; fits && d < x.ndim(); ++d) fits = x[d] == 1 || x[d] == shape[d + lead];
  return fits;
}

ConstView mask_view(const char* where, const Tensor& mask, const Tensor& q,
                    const Shape& probabilities) {
  if (!mask.defined()) return {};
  TESSERA_CHECK(mask.dtype() == DType::kBool || is_floating(mask.dtype()), where,
                "the mask has dtype {}; it must be bool (true: may attend) or floating (added)",
                dtype_name(mask.dtype()));
  ops::check_same_device(where, q, mask);
  TESSERA_CHECK(expands_to(mask.shape(), probabilities), where,
                "the mask {} does not broadcast to the scores {}; its extents must be theirs or 1",
                mask.shape().str(), probabilities.str());
  return read(mask.expand(probabilities));
}

void set_dropout(const char* where, const AttentionOptions& options, const Shape& probabilities,
                 AttentionRule& rule) {
  TESSERA_CHECK(options.dropout_p >= 0 && options.dropout_p <= 1, where,
                "dropout_p is {}; it must lie in [0, 1]", options.dropout_p);
  const random::Box box =
      options.dropout_box.global.ndim() > 0 ? options.dropout_box : random::whole(probabilities);
  bool inside =
      box.global.ndim() == probabilities.ndim() && box.offset.ndim() == probabilities.ndim();
  for (int d = 0; inside && d < probabilities.ndim(); ++d) {
    inside = box.offset[d] >= 0 && box.offset[d] + probabilities[d] <= box.global[d];
  }
  TESSERA_CHECK(inside, where,
                "probabilities of shape {} at {} do not lie inside the global shape {}",
                probabilities.str(), box.offset.str(), box.global.str());
  rule.dropout_p = options.dropout_p;
  rule.key = options.dropout_key.value;
  rule.position_strides = contiguous_strides(box.global);
  for (int d = 0; d < probabilities.ndim(); ++d) {
    rule.first_position += box.offset[d] * rule.position_strides[d];
  }
}

AttentionRule rule_of(const char* where, const AttentionInputs& in,
                      const AttentionOptions& options) {
  const std::int64_t queries = in.q.dim(-2), keys = in.k.dim(-2);
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(in.q.dim(-1))));
  TESSERA_CHECK(std::isfinite(scale), where, "the scale is {}; it must be finite", scale);
  const Shape probabilities = in.q.shape().with(in.q.ndim() - 1, keys);
  const bool bottom_right = options.alignment == CausalAlignment::kBottomRight;
  AttentionRule rule{.mask = mask_view(where, options.mask, in.q, probabilities),
                     .causal = options.causal,
                     .diagonal = bottom_right ? keys - queries : 0,
                     .scale = scale,
                     .position_strides = {}};
  set_dropout(where, options, probabilities, rule);
  return rule;
}

// An uninitialised tensor like `x` with another last extent. If x is a transpose of [.., length,
// heads, dim], so is the result; transposing it back then needs no copy.
Tensor empty_like(const Tensor& x, std::int64_t last) {
  const int heads = x.ndim() - 3, length = x.ndim() - 2;
  const Shape shape = x.shape().with(x.ndim() - 1, last);
  if (x.strides()[length] <= x.strides()[heads]) return Tensor::empty(shape, x.options());
  const Shape swapped = shape.with(heads, shape[length]).with(length, shape[heads]);
  return Tensor::empty(swapped, x.options()).transpose(heads, length);
}

// Uninitialised tensors like q, k and v. If those are the heads of one tensor with rows of all three,
// as a single projection computes them, so are the results: a derivative that joins them needs no
// copy.
AttentionInputs empty_like(const AttentionInputs& in) {
  const Tensor &q = in.q, &k = in.k, &v = in.v;
  const std::int64_t width = q.dim(-1), q_width = q.dim(-3) * width, kv_width = k.dim(-3) * width,
                     row = q_width + 2 * kv_width;
  const auto beside = [&](const Tensor& x, std::int64_t offset) {
    return x.storage() == q.storage() && x.strides() == q.strides() && x.dim(-1) == width &&
           x.offset() == q.offset() + offset;
  };
  const Shape& strides = q.strides();
  const std::int64_t batches = q.dim(0), length = q.dim(2);
  const bool rows = q.ndim() == 4 && beside(k, q_width) && beside(v, q_width + kv_width) &&
                    length == k.dim(2) && strides[3] == 1 && strides[1] == width;
  // The strides of batch and length; those of one entry mean nothing.
  const auto steps = [&](std::int64_t batch, std::int64_t step) {
    return (batches == 1 || strides[0] == batch) && (length == 1 || strides[2] == step);
  };
  const bool batch_first = rows && steps(row * length, row);
  const bool length_first = rows && steps(row, row * batches);
  if (!batch_first && !length_first) {
    return {.q = empty_like(q, width), .k = empty_like(k, width), .v = empty_like(v, v.dim(-1))};
  }
  const int batch = batch_first ? 0 : 1;
  const Tensor all = Tensor::empty(
      batch_first ? Shape{batches, length, row} : Shape{length, batches, row}, q.options());
  const auto part = [&](std::int64_t begin, std::int64_t size) {
    return all.narrow(2, begin, size)
        .unflatten(2, {size / width, width})
        .permute({batch, 2, 1 - batch, 3});
  };
  return {
      .q = part(0, q_width), .k = part(q_width, kv_width), .v = part(q_width + kv_width, kv_width)};
}

// One query per head, as in text generation: the heads of a group read the same keys, so they
// become the rows of one head, and the keys are read once.
void fold_group(AttentionKernel::Args& args) {
  const int length = args.q.shape.ndim() - 2, heads = length - 1;
  const std::int64_t queries = args.q.shape[length], kv_heads = args.k.shape[heads];
  if (queries != 1 || kv_heads == 0 || args.q.shape[heads] == kv_heads) return;
  const std::int64_t group = args.q.shape[heads] / kv_heads;
  const auto fold = [=](Shape& shape, Shape& strides) {
    shape[length] = group;
    shape[heads] = kv_heads;
    strides[length] = strides[heads];
    strides[heads] *= group;
  };
  Shape probabilities = args.q.shape;
  AttentionRule& rule = args.rule;
  fold(probabilities, rule.position_strides);
  fold(args.q.shape, args.q.strides);
  fold(args.out.shape, args.out.strides);
  // The rows no longer are time steps, so the causal rule is applied by cropping the keys.
  const std::int64_t visible = rule.visible_end(1, args.k.shape[length]);
  args.k.shape[length] = args.v.shape[length] = visible;
  rule.causal = false;
  if (!rule.mask.defined()) return;
  fold(rule.mask.shape, rule.mask.strides);
  rule.mask.shape[length + 1] = visible;
}

void check_result(const Tensor& doutput, const AttentionInputs& in, const AttentionResult& result) {
  const Shape output = in.q.shape().with(in.q.ndim() - 1, in.v.dim(-1));
  const auto check = [&](const char* name, const Tensor& x, DType dtype, const Shape& shape) {
    ops::check_defined(kBackward, name, x);
    ops::check_same_device(kBackward, in.q, x);
    TESSERA_CHECK(x.dtype() == dtype && x.shape() == shape, kBackward,
                  "{} is {} {}, expected {} {}", name, dtype_name(x.dtype()), x.shape().str(),
                  dtype_name(dtype), shape.str());
  };
  check("the output's gradient", doutput, in.q.dtype(), output);
  check("the output", result.output, in.q.dtype(), output);
  check("log_sum_exp", result.log_sum_exp, compute_dtype(in.q.dtype()),
        output.without(output.ndim() - 1));
  TESSERA_CHECK(result.log_sum_exp.is_contiguous(), kBackward,
                "log_sum_exp {} has strides {}; pass the one of the forward, which is contiguous",
                result.log_sum_exp.shape().str(), result.log_sum_exp.strides().str());
}

}  // namespace

AttentionResult scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionOptions& options) {
  const auto is_one_head = [](const Tensor& x) { return x.defined() && x.ndim() == 2; };
  if (is_one_head(q) && is_one_head(k) && is_one_head(v)) {
    const AttentionResult one =
        scaled_dot_product_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), options);
    return {.output = one.output.select(0, 0), .log_sum_exp = one.log_sum_exp.select(0, 0)};
  }
  const AttentionInputs in{.q = q, .k = k, .v = v};
  check_inputs(kForward, in);
  const AttentionRule rule = rule_of(kForward, in, options);
  const AttentionResult result{
      .output = empty_like(q, v.dim(-1)),
      .log_sum_exp = Tensor::empty(q.shape().without(q.ndim() - 1),
                                   {.dtype = compute_dtype(q.dtype()), .device = q.device()})};
  AttentionKernel::Args args{.q = read(q),
                             .k = read(k),
                             .v = read(v),
                             .out = write(result.output),
                             .log_sum_exp = write(result.log_sum_exp),
                             .rule = rule};
  fold_group(args);
  launch<AttentionKernel>(q.device(), args);
  return result;
}

AttentionInputs scaled_dot_product_attention_backward(const Tensor& doutput,
                                                      const AttentionInputs& inputs,
                                                      const AttentionResult& result,
                                                      const AttentionOptions& options) {
  check_inputs(kBackward, inputs);
  const AttentionRule rule = rule_of(kBackward, inputs, options);
  check_result(doutput, inputs, result);
  const AttentionInputs gradients = empty_like(inputs);
  launch<AttentionBackwardKernel>(inputs.q.device(), {.dout = read(doutput),
                                                      .q = read(inputs.q),
                                                      .k = read(inputs.k),
                                                      .v = read(inputs.v),
                                                      .out = read(result.output),
                                                      .log_sum_exp = read(result.log_sum_exp),
                                                      .dq = write(gradients.q),
                                                      .dk = write(gradients.k),
                                                      .dv = write(gradients.v),
                                                      .rule = rule,
                                                      .fixed_order = deterministic()});
  return gradients;
}

}  // namespace tessera
