// Operations of neural networks, and steps of optimizers.

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/ops/ops.h"
#include "tessera/tools/bench/bench_ops_table.h"

namespace tessera {
namespace {

// [rows, features]
const BenchShapes kRows = {
    .gpu = {{8192, 4096}, {64, 64}}, .cpu = {{2048, 1024}, {64, 64}}, .smoke = {5, 12}};

BenchOp on_rows(std::string_view name, std::function<OpCall(OpInputs&, const Shape&)> make) {
  return {.name = name, .shapes = kRows, .make = std::move(make)};
}

void add_norms(std::vector<BenchOp>& all) {
  all.push_back(on_rows("layer_norm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s), w = in.normal({s[1]}), b = in.normal({s[1]})] {
      return layer_norm(x, w, b);
    };
  }));
  all.push_back(on_rows("rms_norm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s), w = in.normal({s[1]})] { return rms_norm(x, w); };
  }));
  all.push_back(on_rows("add_layer_norm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s), residual = in.normal(s), w = in.normal({s[1]}),
            b = in.normal({s[1]})] { return add_layer_norm(x, residual, w, b).y; };
  }));
  all.push_back(on_rows("add_rms_norm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s), residual = in.normal(s), w = in.normal({s[1]})] {
      return add_rms_norm(x, residual, w).y;
    };
  }));
}

void add_softmax(std::vector<BenchOp>& all) {
  all.push_back(on_rows("softmax", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s)] { return softmax(x); };
  }));
  all.push_back(on_rows("log_softmax", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s)] { return log_softmax(x); };
  }));
  all.push_back({.name = "cross_entropy",  // [rows, classes]
                 .shapes = {.gpu = {{2048, 50304}, {64, 10}},
                            .cpu = {{1024, 8192}, {64, 10}},
                            .smoke = {5, 7}},
                 .make = [](OpInputs& in, const Shape& s) -> OpCall {
                   return [x = in.normal(s), targets = in.integers(s[1], {s[0]})] {
                     return cross_entropy(x, targets);
                   };
                 }});
  all.push_back(on_rows("dropout", [](OpInputs& in, const Shape& s) -> OpCall {
    return
        [x = in.normal(s), box = random::whole(s)] { return dropout(x, 0.1, random::Key{1}, box); };
  }));
}

OpCall attention(OpInputs& in, const Shape& s, bool causal) {
  return [q = in.normal(s), k = in.normal(s), v = in.normal(s), causal] {
    return scaled_dot_product_attention(q, k, v, {.causal = causal});
  };
}

void add_attention(std::vector<BenchOp>& all) {
  // [batch, heads, length, features]
  const BenchShapes shapes = {
      .gpu = {{8, 16, 1024, 64}}, .cpu = {{4, 8, 256, 64}}, .smoke = {1, 2, 6, 8}};
  all.push_back({.name = "attention", .shapes = shapes, .make = [](OpInputs& in, const Shape& s) {
                   return attention(in, s, false);
                 }});
  all.push_back({.name = "attention_causal",
                 .shapes = shapes,
                 .make = [](OpInputs& in, const Shape& s) { return attention(in, s, true); }});
  all.push_back(
      {.name = "rotary",  // [batch, positions, heads, features]
       .shapes = {.gpu = {{4, 2048, 32, 128}}, .cpu = {{4, 256, 8, 64}}, .smoke = {1, 3, 2, 8}},
       .make = [](OpInputs& in, const Shape& s) -> OpCall {
         return
             [x = in.normal(s), table = rotary_table(s[1], s[3], {.device = in.options().device})] {
               return rotary(x, table);
             };
       }});
  all.push_back(
      {.name = "embedding",  // [entries, features, tokens]
       .shapes = {.gpu = {{50304, 1024, 16384}}, .cpu = {{8192, 512, 4096}}, .smoke = {9, 4, 12}},
       .make = [](OpInputs& in, const Shape& s) -> OpCall {
         return [weight = in.normal({s[0], s[1]}), index = in.integers(s[0], {s[2]})] {
           return embedding(weight, index);
         };
       }});
}

}  // namespace

void add_nn_ops(std::vector<BenchOp>& all) {
  add_norms(all);
  add_softmax(all);
  add_attention(all);
}

namespace {

// [samples, channels, height, width]
const BenchShapes kImages = {
    .gpu = {{64, 256, 56, 56}}, .cpu = {{8, 64, 28, 28}}, .smoke = {2, 4, 6, 6}};

BenchOp on_images(std::string_view name, std::function<OpCall(OpInputs&, const Shape&)> make) {
  return {.name = name, .shapes = kImages, .make = std::move(make)};
}

// [samples, channels, length]
BenchOp on_series(std::string_view name, Variable (*pooled)(const Variable&)) {
  return {.name = name,
          .shapes = {.gpu = {{64, 256, 2048}}, .cpu = {{8, 64, 512}}, .smoke = {2, 3, 8}},
          .make = [pooled](OpInputs& in, const Shape& s) -> OpCall {
            return [pooled, x = in.normal(s)] { return pooled(x); };
          }};
}

void add_series_pooling(std::vector<BenchOp>& all) {
  all.push_back(
      on_series("max_pool1d", [](const Variable& x) { return max_pool1d(x, {.kernel = 2}); }));
  all.push_back(
      on_series("avg_pool1d", [](const Variable& x) { return avg_pool1d(x, {.kernel = 2}); }));
  all.push_back(on_series("adaptive_avg_pool1d",
                          [](const Variable& x) { return adaptive_avg_pool1d(x, 1); }));
  all.push_back(on_series("adaptive_max_pool1d",
                          [](const Variable& x) { return adaptive_max_pool1d(x, 3); }));
}

void add_pooling(std::vector<BenchOp>& all) {
  all.push_back(on_images("max_pool2d", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s)] { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); };
  }));
  all.push_back(on_images("avg_pool2d", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s)] { return avg_pool2d(x, {.kernel = 2}); };
  }));
  all.push_back(on_images("adaptive_avg_pool2d", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s)] { return adaptive_avg_pool2d(x, 1); };
  }));
  all.push_back(on_images("adaptive_max_pool2d", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s)] { return adaptive_max_pool2d(x, 3); };
  }));
}

}  // namespace

void add_image_ops(std::vector<BenchOp>& all) {
  all.push_back(on_images("batch_norm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s), w = in.normal({s[1]}), b = in.normal({s[1]})] {
      return batch_norm(x, w, b);
    };
  }));
  all.push_back(on_images("group_norm", [](OpInputs& in, const Shape& s) -> OpCall {
    return [x = in.normal(s), w = in.normal({s[1]}), b = in.normal({s[1]})] {
      return group_norm(x, w, b, {.groups = 4});
    };
  }));
  add_pooling(all);
  add_series_pooling(all);
  all.push_back({.name = "conv2d",  // [samples, channels, side, filters, kernel]
                 .shapes = {.gpu = {{32, 128, 56, 128, 3}, {32, 256, 56, 64, 1}},
                            .cpu = {{8, 64, 28, 64, 3}, {8, 128, 28, 64, 1}},
                            .smoke = {2, 3, 6, 4, 3}},
                 .make = [](OpInputs& in, const Shape& s) -> OpCall {
                   return [x = in.normal({s[0], s[1], s[2], s[2]}),
                           w = in.normal({s[3], s[1], s[4], s[4]}), b = in.normal({s[3]}),
                           padding = s[4] / 2] { return conv2d(x, w, b, {.padding = padding}); };
                 }});
  all.push_back({.name = "conv1d",  // [samples, channels, length, filters, kernel]
                 .shapes = {.gpu = {{32, 256, 2048, 256, 5}},
                            .cpu = {{8, 64, 512, 64, 5}},
                            .smoke = {2, 3, 9, 4, 3}},
                 .make = [](OpInputs& in, const Shape& s) -> OpCall {
                   return [x = in.normal({s[0], s[1], s[2]}), w = in.normal({s[3], s[1], s[4]}),
                           b = in.normal({s[3]}),
                           padding = s[4] / 2] { return conv1d(x, w, b, {.padding = padding}); };
                 }});
}

namespace {

// [tensors, elements of each]
BenchOp on_list(std::string_view name, std::function<OpCall(OpInputs&, const Shape&)> make) {
  return {.name = name,
          .shapes = {.gpu = {{150, 1 << 19}, {150, 1 << 8}},
                     .cpu = {{50, 1 << 16}, {150, 1 << 8}},
                     .smoke = {3, 5}},
          .has_backward = false,
          .only_f32 = true,
          .make = std::move(make)};
}

std::vector<Tensor> tensors(OpInputs& in, const Shape& s) {
  std::vector<Tensor> out;
  for (std::int64_t i = 0; i < s[0]; ++i) out.push_back(in.constant({s[1]}));
  return out;
}

OpCall adamw(OpInputs& in, const Shape& s) {
  std::vector<AdamSegment> segments;
  for (const Tensor& parameter : tensors(in, s)) {
    segments.push_back({.parameter = parameter,
                        .gradient = in.constant({s[1]}),
                        .exp_avg = zeros_like(parameter),
                        .exp_avg_sq = zeros_like(parameter),
                        .weight_decay = 0.01});
  }
  return [segments] {
    adam_step(segments);
    return Variable();
  };
}

OpCall sgd(OpInputs& in, const Shape& s) {
  std::vector<SgdSegment> segments;
  for (const Tensor& parameter : tensors(in, s)) {
    segments.push_back({.parameter = parameter,
                        .gradient = in.constant({s[1]}),
                        .momentum = zeros_like(parameter),
                        .lr = 1e-3,
                        .momentum_factor = 0.9});
  }
  return [segments] {
    sgd_step(segments);
    return Variable();
  };
}

}  // namespace

void add_optimizer_ops(std::vector<BenchOp>& all) {
  all.push_back(on_list("adamw_step", adamw));
  all.push_back(on_list("sgd_momentum_step", sgd));
  all.push_back(on_list("norm_of_list", [](OpInputs& in, const Shape& s) -> OpCall {
    return [list = tensors(in, s)] { return Variable(sqrt(sum_of_squares(list))); };
  }));
}

}  // namespace tessera
