#pragma once

/// The process's standard input, output and error.

namespace tessera {

/// Opens /dev/null for each of them that is closed, so that no file opened later gets its
/// descriptor; using the stream is still an error. Call it while no other thread opens files.
void reserve_standard_streams();

}  // namespace tessera
