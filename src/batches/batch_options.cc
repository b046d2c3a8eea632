#include "batches/batch_options.h"

#include "options/option_values.h"

namespace tandem::batches {

OptionTable batch_option_table(BatchOptions& options) {
  constexpr const char* kGroup = "Files and batches";
  return {{.name = "data-folder",
           .group = kGroup,
           .help = "Folder for uploaded files and batches, which outlive the server; made if it is "
                   "missing. Without it /v1/files and /v1/batches are refused (docs/batches.md)",
           .value = values::path(options.data_folder)},
          {.name = "batch-storage",
           .group = kGroup,
           .help = "Space for all files together",
           .value = values::bytes(options.storage_bytes)},
          {.name = "batch-file-size",
           .group = kGroup,
           .help = "Largest file that may be uploaded",
           .value = values::bytes(options.file_bytes)},
          {.name = "batch-file-lines",
           .unit = "lines",
           .group = kGroup,
           .help = "Most requests of a batch",
           .value = values::whole(options.file_lines, values::WholeRange{1, 10'000'000})},
          {.name = "batch-keep",
           .group = kGroup,
           .help = "How long files and ended batches are kept",
           .value = values::duration(options.keep)}};
}

}  // namespace tandem::batches
