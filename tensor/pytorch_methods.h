#pragma once

/// What PyTorch has as methods of a tensor and Tessera as functions, for the compiler to say so:
/// x.exp() is an error that shows the line below, `exp(x)`. Tensor and Variable derive from it; the
/// methods that they have hide those of the same name. Braces, x.sum({1}), are an error too, which
/// shows the line as a note.

namespace tessera::detail {

class PyTorchMethods {
 public:
  void abs(const auto&...) const = delete;             ///< abs(x)
  void add(const auto&...) const = delete;             ///< x + y; add(x, y, alpha)
  void add_(const auto&...) const = delete;            ///< x += y
  void argmax(const auto&...) const = delete;          ///< argmax(x, 1)
  void argmin(const auto&...) const = delete;          ///< argmin(x, 1)
  void backward(const auto&...) const = delete;        ///< backward(loss)
  void bmm(const auto&...) const = delete;             ///< bmm(x, y)
  void chunk(const auto&...) const = delete;           ///< chunk(x, 3, 0)
  void clamp(const auto&...) const = delete;           ///< clamp(x, 0, 1)
  void clone(const auto&...) const = delete;           ///< clone(x)
  void contiguous(const auto&...) const = delete;      ///< contiguous(x)
  void copy_(const auto&...) const = delete;           ///< copy_(x, from)
  void cpu(const auto&...) const = delete;             ///< to_device(x, kCpu)
  void cuda(const auto&...) const = delete;            ///< to_device(x, {DeviceType::kCuda})
  void cumsum(const auto&...) const = delete;          ///< cumsum(x, 0)
  void div(const auto&...) const = delete;             ///< x / y
  void div_(const auto&...) const = delete;            ///< x /= y
  void eq(const auto&...) const = delete;              ///< eq(x, y)
  void exp(const auto&...) const = delete;             ///< exp(x)
  void fill_(const auto&...) const = delete;           ///< fill_(x, 1)
  void flatten(const auto&...) const = delete;         ///< flatten(x, 1)
  void gather(const auto&...) const = delete;          ///< gather(x, 1, index)
  void index_select(const auto&...) const = delete;    ///< index_select(x, 0, index)
  void log(const auto&...) const = delete;             ///< log(x)
  void log_softmax(const auto&...) const = delete;     ///< log_softmax(x, -1)
  void masked_fill(const auto&...) const = delete;     ///< masked_fill(x, mask, value)
  void matmul(const auto&...) const = delete;          ///< matmul(x, y)
  void max(const auto&...) const = delete;             ///< max(x), max(x, 1)
  void mean(const auto&...) const = delete;            ///< mean(x), mean(x, {1})
  void min(const auto&...) const = delete;             ///< min(x), min(x, 1)
  void mul(const auto&...) const = delete;             ///< x * y
  void mul_(const auto&...) const = delete;            ///< x *= y
  void norm(const auto&...) const = delete;            ///< norm(x), norm(x, {1}, {.p = 1})
  void numpy(const auto&...) const = delete;           ///< x.to_vector<float>()
  void pow(const auto&...) const = delete;             ///< pow(x, 2)
  void prod(const auto&...) const = delete;            ///< prod(x), prod(x, {1})
  void relu(const auto&...) const = delete;            ///< relu(x)
  void repeat(const auto&...) const = delete;          ///< repeat(x, {2, 1})
  void requires_grad_(const auto&...) const = delete;  ///< Variable(x, true)
  void reshape(const auto&...) const = delete;         ///< reshape(x, {2, 3}), or x.view({2, 3})
  void round(const auto&...) const = delete;           ///< round(x)
  void scatter(const auto&...) const = delete;         ///< scatter(x, 1, index, source)
  void sigmoid(const auto&...) const = delete;         ///< sigmoid(x)
  void size(const auto&...) const = delete;            ///< x.dim(0), x.shape()
  void softmax(const auto&...) const = delete;         ///< softmax(x, -1)
  void sort(const auto&...) const = delete;            ///< sort(x, 0)
  void split(const auto&...) const = delete;           ///< split(x, 2, 0)
  void sqrt(const auto&...) const = delete;            ///< sqrt(x)
  void std(const auto&...) const = delete;             ///< stddev(x), stddev(x, {1})
  void sub(const auto&...) const = delete;             ///< x - y
  void sub_(const auto&...) const = delete;            ///< x -= y
  void sum(const auto&...) const = delete;             ///< sum(x), sum(x, {1})
  void t(const auto&...) const = delete;               ///< x.transpose(0, 1)
  void tanh(const auto&...) const = delete;            ///< tanh(x)
  void to(const auto&...) const = delete;      ///< cast(x, DType::kBF16), to_device(x, device)
  void tolist(const auto&...) const = delete;  ///< x.to_vector<float>()
  void topk(const auto&...) const = delete;    ///< topk(x, 5)
  void type(const auto&...) const = delete;    ///< cast(x, DType::kBF16)
  void unbind(const auto&...) const = delete;  ///< unbind(x, 0)
  void var(const auto&...) const = delete;     ///< var(x), var(x, {1})
  void zero_(const auto&...) const = delete;   ///< zero_(x)

 protected:
  PyTorchMethods() = default;  // no object of its own
  ~PyTorchMethods() = default;
  PyTorchMethods(const PyTorchMethods&) = default;
  PyTorchMethods& operator=(const PyTorchMethods&) = default;
};

}  // namespace tessera::detail
