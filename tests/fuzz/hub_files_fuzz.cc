// What a hub says of a model's files, and the index of its weights: no name leads out of a folder.
#include "fuzz/fuzz.h"
#include "hub/cache.h"
#include "hub/checksum.h"
#include "hub/file_list.h"
#include "hub/model_name.h"
#include "hub/refusal.h"

namespace tandem::hub {
namespace {

void check_list(std::string_view input) {
  const Result<FileList> list = parse_file_list(input);
  if (!list.ok()) {
    CHECK(!list.error().message.empty());
    return;
  }
  CHECK(is_commit(list->commit));
  for (const RemoteFile& file : list->files) {
    CHECK(stays_inside(file.path), "{}", file.path);
    CHECK(file.checksum.empty() || is_checksum(file.checksum));
    CHECK(!file.size || (*file.size >= 0 && *file.size <= kMaxFileBytes));
  }
  for (const char* gguf : {"", "m.gguf", "m-00001-of-00002.gguf"}) {
    const auto needed = needed_files(*list, {.repository = "org/model", .file = gguf});
    if (needed.ok()) {
      for (const std::vector<RemoteFile>* files : {&needed->small, &needed->weights}) {
        for (const RemoteFile& file : *files) {
          CHECK(is_safe_path(file.path), "{}", file.path);
        }
      }
    }
  }
}

TANDEM_FUZZ_TARGET(input) {
  check_list(input);
  if (const auto files = files_of_index(input); files.ok()) {
    for (const std::string& file : *files) {
      CHECK(is_safe_path(file), "{}", file);
    }
  }
  if (const auto name = parse_model_name(input); name.ok()) {
    CHECK(looks_like_model_name(input));
    const auto again = parse_model_name(name->text());
    CHECK(again.ok() && *again == *name, "{}", name->text());
    CHECK(stays_inside(name->repository) && stays_inside(name->revision));
  }
  const std::string checksum = checksum_of_etag(input);
  CHECK(checksum.empty() || is_checksum(checksum));
  fuzz::use(gguf_parts(input).size() + (parse_retry_after(input) ? 1U : 0U));
}

}  // namespace
}  // namespace tandem::hub
