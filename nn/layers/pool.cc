#include "tessera/nn/layers/pool.h"

#include "tessera/autograd/ops/ops.h"
#include "tessera/tensor/check.h"

namespace tessera::nn {
namespace {

void check_size(const char* where, const char* what, Size2d size) {
  TESSERA_CHECK(size.height >= 1 && size.width >= 1, where,
                "{} is {} x {}; both must be at least 1", what, size.height, size.width);
}

void check_size(const char* where, const char* what, std::int64_t size) {
  TESSERA_CHECK(size >= 1, where, "{} is {}; it must be at least 1", what, size);
}

}  // namespace

MaxPool1d::MaxPool1d(const MaxPool1dOptions& options) : options_(options) {
  check_size("nn.MaxPool1d", "kernel", options.kernel);
}
Variable MaxPool1d::forward(const Variable& x) { return max_pool1d(x, options_); }

MaxPool2d::MaxPool2d(const MaxPool2dOptions& options) : options_(options) {
  check_size("nn.MaxPool2d", "kernel", options.kernel);
}
Variable MaxPool2d::forward(const Variable& x) { return max_pool2d(x, options_); }

AvgPool1d::AvgPool1d(const AvgPool1dOptions& options) : options_(options) {
  check_size("nn.AvgPool1d", "kernel", options.kernel);
}
Variable AvgPool1d::forward(const Variable& x) { return avg_pool1d(x, options_); }

AvgPool2d::AvgPool2d(const AvgPool2dOptions& options) : options_(options) {
  check_size("nn.AvgPool2d", "kernel", options.kernel);
}
Variable AvgPool2d::forward(const Variable& x) { return avg_pool2d(x, options_); }

AdaptiveMaxPool1d::AdaptiveMaxPool1d(const AdaptivePool1dOptions& options) : options_(options) {
  check_size("nn.AdaptiveMaxPool1d", "output", options.output);
}
Variable AdaptiveMaxPool1d::forward(const Variable& x) {
  return adaptive_max_pool1d(x, options_.output);
}

AdaptiveMaxPool2d::AdaptiveMaxPool2d(const AdaptivePool2dOptions& options) : options_(options) {
  check_size("nn.AdaptiveMaxPool2d", "output", options.output);
}
Variable AdaptiveMaxPool2d::forward(const Variable& x) {
  return adaptive_max_pool2d(x, options_.output);
}

AdaptiveAvgPool1d::AdaptiveAvgPool1d(const AdaptivePool1dOptions& options) : options_(options) {
  check_size("nn.AdaptiveAvgPool1d", "output", options.output);
}
Variable AdaptiveAvgPool1d::forward(const Variable& x) {
  return adaptive_avg_pool1d(x, options_.output);
}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(const AdaptivePool2dOptions& options) : options_(options) {
  check_size("nn.AdaptiveAvgPool2d", "output", options.output);
}
Variable AdaptiveAvgPool2d::forward(const Variable& x) {
  return adaptive_avg_pool2d(x, options_.output);
}

}  // namespace tessera::nn
