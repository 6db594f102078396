#pragma once

/// Recurrent layers: a state h that every step of a sequence changes, in several layers, each of which reads what the
/// one below gives, and in both directions if asked.
///
///     RNN:   h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu
///     LSTM:  i, f, g, o = W_ih x + b_ih + W_hh h + b_hh, cut into four
///            c' = sigmoid(f) c + sigmoid(i) tanh(g)          h' = sigmoid(o) tanh(c')
///     GRU:   r = sigmoid(W_ir x + b_ir + W_hr h + b_hr), z likewise
///            n = tanh(W_in x + b_in + r (W_hn h + b_hn))     h' = (1 - z) n + z h
///
///     x [length, samples, input_size] -> output [length, samples, hidden_size * directions], h of the last layer
///     h_n, c_n and the initial h and c [num_layers * directions, samples, hidden_size]; zeros where none is given
///
/// With batch_first samples and length change places in x and output. Without samples in x none in the results, and
/// none in initial states. In reverse h_n is the state after the first element.
///
/// Parameters, for layer k: weight_ih_lk [gates * hidden_size, input], weight_hh_lk [gates * hidden_size, hidden_size],
/// bias_ih_lk and bias_hh_lk [gates * hidden_size], and in reverse the same with _reverse at the end: names, order of
/// gates and initial values (uniform, 1 / sqrt(hidden_size)) are PyTorch's. 16 bits are rounded to by each operation.
/// Left out: proj_size, packed sequences (pad them), device (see nn::initialize). (Elman, 1990; Hochreiter and
/// Schmidhuber, 1997; Cho et al., 2014.)

#include <cstdint>

#include "tessera/nn/layer.h"
#include "tessera/nn/layers/recurrent.h"

namespace tessera::nn {

enum class RNNNonlinearity : std::uint8_t { kTanh, kRelu };

struct RNNOptions {
  std::int64_t input_size = 0;   ///< required, >= 1
  std::int64_t hidden_size = 0;  ///< required, >= 1
  std::int64_t num_layers = 1;   ///< >= 1
  RNNNonlinearity nonlinearity = RNNNonlinearity::kTanh;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;  ///< of the output of each layer but the last, in training
  bool bidirectional = false;
  DType dtype = DType::kF32;
};

/// The same without a choice of nonlinearity.
struct LSTMOptions {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  double dropout = 0;
  bool bidirectional = false;
  DType dtype = DType::kF32;
};
using GRUOptions = LSTMOptions;

struct RNNResult {
  Variable output;
  Variable h_n;

  template <class F>
  void visit_tensors(F&& f) {
    f(output, h_n);
  }
};

/// h and c of an LSTM, both or neither.
struct LSTMState {
  Variable h = {};
  Variable c = {};

  template <class F>
  void visit_tensors(F&& f) {
    f(h, c);
  }
};

struct LSTMResult {
  Variable output;
  Variable h_n;
  Variable c_n;

  template <class F>
  void visit_tensors(F&& f) {
    f(output, h_n, c_n);
  }
};

namespace detail {

/// What the three have in common.
template <class Derived>
class RecurrentLayer : public Layer<Derived> {
 public:
  /// Throw InvalidArgument for a layer or direction that does not exist; StateError for a bias when built
  /// without.
  Parameter& weight_ih(std::int64_t layer = 0, bool reverse = false) {
    return stack_.parameter(layer, reverse, 0);
  }
  Parameter& weight_hh(std::int64_t layer = 0, bool reverse = false) {
    return stack_.parameter(layer, reverse, 1);
  }
  Parameter& bias_ih(std::int64_t layer = 0, bool reverse = false) {
    return stack_.parameter(layer, reverse, 2);
  }
  Parameter& bias_hh(std::int64_t layer = 0, bool reverse = false) {
    return stack_.parameter(layer, reverse, 3);
  }

 protected:
  RecurrentLayer(const char* where, RecurrentKind kind, const RecurrentSizes& sizes)
      : stack_(where, kind, sizes) {
    stack_.parameters().register_with([this](const std::string& name, Parameter& parameter) {
      this->register_parameter(name, parameter);
    });
  }
  RecurrentStack::Result run(const Variable& x, const RecurrentState& initial,
                             const char* unnamed) const {
    const std::string path = this->scope_name().path();
    return stack_.run(x, initial, this->is_training(), path.empty() ? unnamed : path);
  }

 private:
  RecurrentStack stack_;
};

}  // namespace detail

class RNN final : public detail::RecurrentLayer<RNN> {
 public:
  using Options = RNNOptions;
  /// Throws InvalidArgument for sizes below 1 and a dropout outside [0, 1]; so do the others.
  explicit RNN(const RNNOptions& options);
  RNN(int, int, const auto&...) = delete;  ///< {.input_size = 8, .hidden_size = 16}
  /// Throws InvalidArgument naming the first weight when x has other features or dims, no steps, or another dtype; and
  /// for an initial state of another shape; so do the others.
  RNNResult forward(const Variable& x, const Variable& h = {});
};

class LSTM final : public detail::RecurrentLayer<LSTM> {
 public:
  using Options = LSTMOptions;
  explicit LSTM(const LSTMOptions& options);
  LSTM(int, int, const auto&...) = delete;  ///< {.input_size = 8, .hidden_size = 16}
  LSTMResult forward(const Variable& x, const LSTMState& initial = {});
};

class GRU final : public detail::RecurrentLayer<GRU> {
 public:
  using Options = GRUOptions;
  explicit GRU(const GRUOptions& options);
  GRU(int, int, const auto&...) = delete;  ///< {.input_size = 8, .hidden_size = 16}
  RNNResult forward(const Variable& x, const Variable& h = {});
};

// ---- single steps -------------------------------------------------------------------------------

struct RNNCellOptions {
  std::int64_t input_size = 0;   ///< required, >= 1
  std::int64_t hidden_size = 0;  ///< required, >= 1
  bool bias = true;
  RNNNonlinearity nonlinearity = RNNNonlinearity::kTanh;
  DType dtype = DType::kF32;
};
struct LSTMCellOptions {
  std::int64_t input_size = 0;
  std::int64_t hidden_size = 0;
  bool bias = true;
  DType dtype = DType::kF32;
};
using GRUCellOptions = LSTMCellOptions;

namespace detail {

/// One step of one layer: x [samples, input_size] or [input_size], states [samples, hidden_size] or [hidden_size].
/// Parameters weight_ih, weight_hh, bias_ih and bias_hh.
template <class Derived>
class RecurrentCell : public Layer<Derived> {
 public:
  Parameter& weight_ih() { return parameters_.at(0, 0); }
  Parameter& weight_hh() { return parameters_.at(0, 1); }
  /// Throw StateError when built without.
  Parameter& bias_ih() { return parameters_.at(0, 2); }
  Parameter& bias_hh() { return parameters_.at(0, 3); }

 protected:
  RecurrentCell(const char* where, RecurrentKind kind, const RecurrentSizes& sizes)
      : where_(where), kind_(kind), parameters_(where, kind, sizes) {
    parameters_.add(sizes.input_size, "");
    parameters_.register_with([this](const std::string& name, Parameter& parameter) {
      this->register_parameter(name, parameter);
    });
  }
  RecurrentState run(const Variable& x, const RecurrentState& state) const {
    return run_cell(where_, kind_, parameters_, {x, state});
  }

 private:
  const char* where_;
  RecurrentKind kind_;
  RecurrentParameters parameters_;
};

}  // namespace detail

class RNNCell final : public detail::RecurrentCell<RNNCell> {
 public:
  using Options = RNNCellOptions;
  /// Throws InvalidArgument for sizes below 1; so do the others.
  explicit RNNCell(const RNNCellOptions& options);
  /// h', of zeros where h is undefined. Throws InvalidArgument for operands that do not fit; so do the others.
  Variable forward(const Variable& x, const Variable& h = {});
};

class LSTMCell final : public detail::RecurrentCell<LSTMCell> {
 public:
  using Options = LSTMCellOptions;
  explicit LSTMCell(const LSTMCellOptions& options);
  LSTMState forward(const Variable& x, const LSTMState& state = {});
};

class GRUCell final : public detail::RecurrentCell<GRUCell> {
 public:
  using Options = GRUCellOptions;
  explicit GRUCell(const GRUCellOptions& options);
  Variable forward(const Variable& x, const Variable& h = {});
};

}  // namespace tessera::nn
