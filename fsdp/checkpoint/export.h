#pragma once

/// A checkpoint's model as one ordinary safetensors file, which other programs read.

#include <string>

namespace tessera::checkpoint {

/// Writes the model of the checkpoint in `folder` to `path`: whole tensors under the names of the unsharded
/// model, as nn::save_state() of its state dict. One tensor is in memory at a time. A file that was at
/// `path` is replaced once the new one is complete. By one process, without ranks.
///
/// Throws CheckpointError for a folder without a valid index, for damaged bytes, naming file and tensor, and
/// if the file cannot be written; InvalidArgument for a checkpoint without a model.
void export_model(const std::string& folder, const std::string& path);

}  // namespace tessera::checkpoint
