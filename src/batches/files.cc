#include "batches/files.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <charconv>

#include "base/check.h"
#include "base/log.h"
#include "base/units.h"

namespace tandem::batches {

std::string new_object_id(std::string_view prefix) {
  std::array<unsigned char, 16> random{};
  const ssize_t got = ::getrandom(random.data(), random.size(), 0);
  CHECK(got == static_cast<ssize_t>(random.size()), "no random bytes: {}", got);
  std::string id(prefix);
  for (const unsigned char byte : random) {
    id += fmt::format("{:02x}", byte);
  }
  return id;
}

Result<std::unique_ptr<Upload>> Files::begin_upload(std::string_view owner,
                                                    std::string_view content_type) {
  ASSIGN_OR_RETURN(MultipartReader reader, MultipartReader::make(content_type));
  return std::unique_ptr<Upload>(new Upload(*this, owner, std::move(reader)));
}

Result<ContentReader> Files::content(std::string_view owner, std::string_view id) {
  ASSIGN_OR_RETURN(const FileObject file, store_.file(owner, id));
  Result<ContentReader> content = ContentReader::open(folder_.content(file.id));
  if (!content.ok()) {
    // The row goes before the contents: without it they were removed since it was read.
    RETURN_IF_ERROR(store_.file(owner, id));
  }
  return content;
}

Status Files::remove(std::string_view owner, std::string_view id) {
  RETURN_IF_ERROR(store_.remove_file(owner, id));
  recount();
  return {};
}

Status Files::refresh() {
  const std::scoped_lock lock(refreshing_);  // the last to read is the last to store
  ASSIGN_OR_RETURN(stored_, store_.stored_bytes());
  return {};
}

void Files::recount() {
  if (const Status counted = refresh(); !counted.ok()) {
    log::warn("the space taken by files was not counted: {}", counted.error().message);
  }
}

Status Files::check_disk(int64_t more) {
  int64_t free = 0;
  {
    const std::scoped_lock lock(looking_);
    if (looked_at_ != now()) {
      looked_at_ = now();
      free_bytes_ = folder_.free_bytes();
    }
    free = free_bytes_;
  }
  if (free >= options_.min_free_bytes && free - options_.min_free_bytes >= more) {
    return {};
  }
  return Error{
      ErrorCode::kResourceExhausted,
      more == 0
          ? fmt::format("the disk of --data-folder has less than {} left; free some space",
                        exact_bytes(options_.min_free_bytes))
          : fmt::format("the disk of --data-folder has no room for {} beside the {} that stay "
                        "free; free some space",
                        exact_bytes(more), exact_bytes(options_.min_free_bytes)),
      ""};
}

void Files::set_work_bytes(std::string_view batch_id, int64_t bytes) {
  const std::scoped_lock lock(looking_);
  const auto found = work_.find(batch_id);
  if (found == work_.end()) {
    if (bytes != 0) {
      work_.emplace(batch_id, CountedBytes(in_flight_, bytes));
    }
  } else if (bytes == 0) {
    work_.erase(found);
  } else {
    found->second.set(bytes);
  }
}

Error Files::too_large() const {
  return {ErrorCode::kPayloadTooLarge,
          fmt::format("the file is larger than {}; split it, or raise --batch-file-size",
                      exact_bytes(options_.file_bytes)),
          "file"};
}

Status Upload::begin_part(const PartHead& head) {
  part_ = Part::kField;
  if (head.name == "file") {
    if (content_) {
      return invalid_argument("the field 'file' stands twice; upload one file at a time", "file");
    }
    constexpr size_t kMaxName = 255;
    filename_ = first_chars(head.filename.value_or(""), kMaxName);
    filename_ = filename_.empty() ? "file" : filename_;
    RETURN_IF_ERROR(check_count());
    ASSIGN_OR_RETURN(NewContent content, NewContent::create(files_.folder_, id_));
    content_.emplace(std::move(content));
    part_ = Part::kFile;
  } else if (head.name == "purpose") {
    field_ = &purpose_;
  } else if (head.name == "expires_after[anchor]") {
    field_ = &expires_anchor_;
  } else if (head.name == "expires_after[seconds]") {
    field_ = &expires_seconds_;
  } else {
    part_ = Part::kIgnored;
  }
  if (part_ == Part::kField) {
    field_->emplace();
  }
  return {};
}

Status Upload::part_data(std::string_view bytes) {
  constexpr size_t kMaxField = 256;
  const BatchOptions& options = files_.options_;
  switch (part_) {
    case Part::kIgnored:
      return {};
    case Part::kField:
      **field_ += bytes;
      if ((*field_)->size() > kMaxField) {
        return invalid_argument(
            fmt::format("a field beside the file has more than {} bytes", kMaxField));
      }
      return {};
    case Part::kFile:
      break;
  }
  const int64_t size = content_->bytes() + std::ssize(bytes);
  if (size > options.file_bytes) {
    return files_.too_large();
  }
  RETURN_IF_ERROR(files_.check_disk());
  space_.set(size);
  if (files_.full()) {
    return Error{ErrorCode::kPayloadTooLarge,
                 fmt::format("the space for files ({}) is used up; delete files that are not "
                             "needed, or raise --batch-storage",
                             exact_bytes(options.storage_bytes)),
                 "file"};
  }
  return content_->append(bytes);
}

Status Upload::end_part() {
  return field_ == &purpose_ && part_ == Part::kField ? check_purpose() : Status();
}

Status Upload::check_count() const {
  ASSIGN_OR_RETURN(const int64_t uploads, files_.store_.uploads_of(owner_));
  if (uploads < files_.options_.files_of_key) {
    return {};
  }
  return Error{ErrorCode::kOverloaded,
               fmt::format("this key has {} uploaded files, and may have {}; delete files that are "
                           "not needed",
                           uploads, files_.options_.files_of_key),
               "file"};
}

Status Upload::check_purpose() const {
  if (purpose_ == kPurposeBatch) {
    return {};
  }
  return invalid_argument(
      purpose_ ? fmt::format("'purpose' must be \"batch\", not \"{}\"; other uses of files are not "
                             "built",
                             shown(*purpose_))
               : "the field 'purpose' is missing; send \"batch\"",
      "purpose");
}

Result<std::optional<int64_t>> Upload::expires_at(int64_t created_at) const {
  constexpr int64_t kMinSeconds = 3600;
  constexpr int64_t kMaxSeconds = int64_t{30} * 24 * 3600;
  if (!expires_anchor_ && !expires_seconds_) {
    return std::optional<int64_t>();
  }
  int64_t seconds = 0;
  const std::string text = expires_seconds_.value_or("");
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (expires_anchor_ != "created_at" || parsed.ec != std::errc() ||
      parsed.ptr != text.data() + text.size() || seconds < kMinSeconds || seconds > kMaxSeconds) {
    return invalid_argument(
        fmt::format("'expires_after' must have the anchor \"created_at\" and {} to {} seconds",
                    kMinSeconds, kMaxSeconds),
        "expires_after");
  }
  return std::optional(created_at + seconds);
}

Result<FileObject> Upload::finish() {
  RETURN_IF_ERROR(reader_.finish());
  RETURN_IF_ERROR(check_purpose());
  if (!content_) {
    return invalid_argument("the field 'file' is missing", "file");
  }
  if (content_->bytes() == 0) {
    return invalid_argument("the file is empty; it needs one request a line", "file");
  }
  FileObject file{.id = id_,
                  .owner = owner_,
                  .filename = filename_,
                  .purpose = std::string(kPurposeBatch),
                  .bytes = content_->bytes(),
                  .created_at = files_.now(),
                  .expires_at = {}};
  ASSIGN_OR_RETURN(file.expires_at, expires_at(file.created_at));
  RETURN_IF_ERROR(content_->publish());
  if (const Status added = files_.store_.add_file(file); !added.ok()) {
    files_.folder_.remove_content(id_);
    return added.error();
  }
  files_.recount();
  space_.set(0);  // counted twice for a moment, never not at all
  return file;
}

}  // namespace tandem::batches
