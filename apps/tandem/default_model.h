// The model that comes with Tandem: served if no other is named.
#pragma once

#include <filesystem>

namespace tandem {

// Its folder: installed with the program, or in the sources that it was built from. Empty: it is in
// neither.
std::filesystem::path default_model();

}  // namespace tandem
