#include "tessera/tests/support/emulated_gpu/cublas/cublas_lt_compute.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "tessera/tensor/half.h"

namespace tessera::emulated::cublas {
namespace {

template <class T>
T load(const void* base, std::int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(void* base, std::int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * sizeof(T), &value, sizeof(T));
}

template <class Number>
Number read(std::uint32_t type, const void* base, std::int64_t index) {
  switch (type) {
    case CUDA_R_16F:
      return static_cast<float>(load<Float16>(base, index));
    case CUDA_R_16BF:
      return static_cast<float>(load<BFloat16>(base, index));
    case CUDA_R_32F:
      return load<float>(base, index);
    default:
      return static_cast<Number>(load<double>(base, index));
  }
}
template <class Number>
void write(std::uint32_t type, void* base, std::int64_t index, Number value) {
  switch (type) {
    case CUDA_R_16F:
      return store(base, index, Float16(value));
    case CUDA_R_16BF:
      return store(base, index, BFloat16(value));
    case CUDA_R_32F:
      return store(base, index, static_cast<float>(value));
    default:
      return store(base, index, static_cast<double>(value));
  }
}

// To 10 bits of mantissa, to nearest, ties away from zero: what cvt.rna.tf32 does.
float to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu);
}

template <class Number>
Number gelu(Number x) {
  const Number root = std::sqrt(Number(2) / Number(M_PI));
  return x / 2 * (1 + std::tanh(root * (x + Number(0.044715) * x * x * x)));
}
// One matrix of the batch.
template <class Number>
class One {
 public:
  One(const Product& product, int batch)
      : x_(product), p_(product.problem), epilogue_(epilogue_of(p_.op.epilogue)), batch_(batch) {
    alpha_ = static_cast<Number>(x_.alpha);
    beta_ = static_cast<Number>(x_.beta);
    read_operands();
  }

  void run() {
    multiply();
    for (std::int64_t j = 0; j < p_.n; ++j) {
      for (std::int64_t i = 0; i < p_.m; ++i) finish(i, j);
    }
  }

 private:
  // a_[k][m] and b_[k][n].
  void read_operands() {
    const bool tf32 = p_.op.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
    const auto copy = [&](const MatrixLayout& from, const void* at, bool k_is_row,
                          std::int64_t other) {
      std::vector<Number> to(p_.k * other);
      for (std::int64_t l = 0; l < p_.k; ++l) {
        for (std::int64_t i = 0; i < other; ++i) {
          const std::int64_t row = k_is_row ? l : i, column = k_is_row ? i : l;
          const auto x =
              read<Number>(from.type, at, batch_ * from.batch_stride + row + column * from.ld);
          to[l * other + i] = tf32 ? static_cast<Number>(to_tf32(static_cast<float>(x))) : x;
        }
      }
      return to;
    };
    a_ = copy(p_.a, x_.a, p_.op.trans_a != CUBLAS_OP_N, p_.m);
    b_ = copy(p_.b, x_.b, p_.op.trans_b == CUBLAS_OP_N, p_.n);
  }

  void multiply() {
    const std::int64_t area = p_.m * p_.n;
    const int splits = x_.algorithm.splits;
    std::vector<Number> own(splits == 1 ? area : 0);
    Number* parts =
        splits == 1 ? own.data() : static_cast<Number*>(x_.workspace) + batch_ * splits * area;
    for (int s = 0; s < splits; ++s) {
      Number* part = parts + s * area;
      std::fill(part, part + area, Number(0));
      for (std::int64_t l = p_.k * s / splits; l < p_.k * (s + 1) / splits; ++l) {
        for (std::int64_t j = 0; j < p_.n; ++j) {
          add_scaled(part + j * p_.m, &a_[l * p_.m], b_[l * p_.n + j]);
        }
      }
    }
    product_.assign(parts, parts + area);
    for (int s = 1; s < splits; ++s) {
      for (std::int64_t i = 0; i < area; ++i) product_[i] += parts[s * area + i];
    }
  }
  void add_scaled(Number* to, const Number* from, Number factor) {
    for (std::int64_t i = 0; i < p_.m; ++i) to[i] += from[i] * factor;
  }

  void finish(std::int64_t i, std::int64_t j) {
    Number x = alpha_ * product_[j * p_.m + i];
    if (beta_ != 0) {
      x += beta_ * read<Number>(p_.c.type, x_.c, batch_ * p_.c.batch_stride + i + j * p_.c.ld);
    }
    if (epilogue_.bias) x += read<Number>(p_.d.type, p_.op.bias, i);
    if (epilogue_.aux) {
      write(p_.d.type, p_.op.aux, batch_ * p_.op.aux_batch_stride + i + j * p_.op.aux_ld, x);
    }
    if (epilogue_.gelu) x = gelu(x);
    write(p_.d.type, x_.d, batch_ * p_.d.batch_stride + i + j * p_.d.ld, x);
  }

  const Product& x_;
  const Problem& p_;
  const Epilogue epilogue_;
  const std::int64_t batch_;
  Number alpha_ = 0, beta_ = 0;
  std::vector<Number> a_, b_, product_;
};

}  // namespace

void compute(const Product& product) {
  for (int batch = 0; batch < product.problem.batch; ++batch) {
    if (in_f64(product.problem)) {
      One<double>(product, batch).run();
    } else {
      One<float>(product, batch).run();
    }
  }
}

}  // namespace tessera::emulated::cublas
