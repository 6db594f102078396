#pragma once

/// A StateDict as one file, and back.
///
///     nn::save_state("run.safetensors", state);
///     nn::StateDict state = nn::load_state("run.safetensors");
///
/// The file is a safetensors file (tensor/io/safetensors.h), which other frameworks read too. Tensors
/// are its tensors. Other values are texts in its metadata under "tessera/" + name: the place in
/// the dict, the kind and the value, as in "12 number 0.001". All values come back bit for bit, NaN
/// and infinities included, and in their order. Tensors that share elements are written once each,
/// and do not share when they come back.
///
/// A file of another program gives its tensors in the order of its header; metadata under other
/// names are left alone.

#include <functional>
#include <string>
#include <vector>

#include "tessera/nn/state/state_dict.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/tensor.h"

namespace tessera::nn {

/// Writes the file in one go: a file that was at `path` is replaced once the new one is complete,
/// and stays when writing fails. Throws InvalidArgument for a dict with parts of sharded tensors,
/// which nn::state_dict() of a sharded model and the state of its optimizer have: the file would
/// lack what the other ranks hold. Else it throws as write_safetensors(): InvalidArgument for a name
/// or text that is not UTF-8, StateError for a tensor on the null device, CheckpointError when the file
/// cannot be written.
void save_state(const std::string& path, const StateDict& state);

/// The same for a state that is too large for memory: the tensors of `state` give only dtypes and shapes, as
/// on the null device, and `read` returns each when it is written, in the order of saved_order().
void save_state_from(const std::string& path, const StateDict& state,
                     const std::function<Tensor(const std::string& name)>& read);
/// The names of the tensors in the order in which a file has their elements.
std::vector<std::string> saved_order(const StateDict& state);

struct LoadStateOptions {
  /// Where the tensors go; on the null device, shapes alone.
  Device device = default_device();
};

/// Throws CheckpointError, naming the file, when it cannot be read, is damaged, holds a tensor of a
/// dtype that Tessera has not, or a value that no save_state() wrote.
StateDict load_state(const std::string& path, const LoadStateOptions& options = {});

}  // namespace tessera::nn
