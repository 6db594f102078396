#include "tessera/nn/layers/rnn.h"

namespace tessera::nn {
namespace {

using detail::RecurrentKind;
using detail::RecurrentSizes;

RecurrentKind kind_of(RNNNonlinearity nonlinearity) {
  return nonlinearity == RNNNonlinearity::kRelu ? RecurrentKind::kRelu : RecurrentKind::kTanh;
}

template <class Options>
RecurrentSizes sizes_of(const Options& options) {
  return {.input_size = options.input_size,
          .hidden_size = options.hidden_size,
          .num_layers = options.num_layers,
          .bias = options.bias,
          .batch_first = options.batch_first,
          .dropout = options.dropout,
          .bidirectional = options.bidirectional,
          .dtype = options.dtype};
}

template <class Options>
RecurrentSizes cell_sizes(const Options& options) {
  return {.input_size = options.input_size,
          .hidden_size = options.hidden_size,
          .bias = options.bias,
          .dtype = options.dtype};
}

}  // namespace

RNN::RNN(const RNNOptions& options)
    : RecurrentLayer("nn.RNN", kind_of(options.nonlinearity), sizes_of(options)) {}

RNNResult RNN::forward(const Variable& x, const Variable& h) {
  const auto result = run(x, {.h = h, .c = {}}, "RNN");
  return {.output = result.output, .h_n = result.state.h};
}

LSTM::LSTM(const LSTMOptions& options)
    : RecurrentLayer("nn.LSTM", RecurrentKind::kLstm, sizes_of(options)) {}

LSTMResult LSTM::forward(const Variable& x, const LSTMState& initial) {
  const auto result = run(x, {.h = initial.h, .c = initial.c}, "LSTM");
  return {.output = result.output, .h_n = result.state.h, .c_n = result.state.c};
}

GRU::GRU(const GRUOptions& options)
    : RecurrentLayer("nn.GRU", RecurrentKind::kGru, sizes_of(options)) {}

RNNResult GRU::forward(const Variable& x, const Variable& h) {
  const auto result = run(x, {.h = h, .c = {}}, "GRU");
  return {.output = result.output, .h_n = result.state.h};
}

RNNCell::RNNCell(const RNNCellOptions& options)
    : RecurrentCell("nn.RNNCell", kind_of(options.nonlinearity), cell_sizes(options)) {}

Variable RNNCell::forward(const Variable& x, const Variable& h) {
  return run(x, {.h = h, .c = {}}).h;
}

LSTMCell::LSTMCell(const LSTMCellOptions& options)
    : RecurrentCell("nn.LSTMCell", RecurrentKind::kLstm, cell_sizes(options)) {}

LSTMState LSTMCell::forward(const Variable& x, const LSTMState& state) {
  const detail::RecurrentState after = run(x, {.h = state.h, .c = state.c});
  return {.h = after.h, .c = after.c};
}

GRUCell::GRUCell(const GRUCellOptions& options)
    : RecurrentCell("nn.GRUCell", RecurrentKind::kGru, cell_sizes(options)) {}

Variable GRUCell::forward(const Variable& x, const Variable& h) {
  return run(x, {.h = h, .c = {}}).h;
}

}  // namespace tessera::nn
