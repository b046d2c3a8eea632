// Uploaded and written files: rows in the store, contents in the data folder, and how much space
// they may take. Threads: any; calls wait for the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/counted_bytes.h"
#include "base/result.h"
#include "batches/batch_options.h"
#include "batches/data_folder.h"
#include "batches/multipart.h"
#include "batches/objects.h"
#include "batches/store.h"

namespace tandem::batches {

// "file-" and 32 random hexadecimal digits.
[[nodiscard]] std::string new_object_id(std::string_view prefix);

class Upload;

class Files {
 public:
  // `now`: seconds since 1970.
  Files(const DataFolder& folder, Store& store, const BatchOptions& options,
        std::function<int64_t()> now)
      : folder_(folder), store_(store), options_(options), now_(std::move(now)) {}

  // Takes the body of a request with this Content-Type.
  Result<std::unique_ptr<Upload>> begin_upload(std::string_view owner,
                                               std::string_view content_type);
  // kNotFound where the owner has no such file, also if it is removed meanwhile.
  Result<ContentReader> content(std::string_view owner, std::string_view id);
  Status remove(std::string_view owner, std::string_view id);

  // kPayloadTooLarge: a file is larger than uploads may be.
  [[nodiscard]] Error too_large() const;

  // What files take as of the last refresh(), and what is being written besides.
  [[nodiscard]] int64_t used_bytes() const { return stored_ + in_flight_; }
  [[nodiscard]] bool full() const { return used_bytes() > options_.storage_bytes; }
  // Counts anew what files take, at the start.
  Status refresh();
  // The same after rows of files were changed in the store. That is done, whether the count can be
  // read now or not: an error goes to the log.
  void recount();
  // kResourceExhausted: the disk would have less than the reserve left after `more` bytes. Looks at
  // the disk once a second.
  Status check_disk(int64_t more = 0);
  // Of the answers of a batch that has not ended; 0: there are none any more.
  void set_work_bytes(std::string_view batch_id, int64_t bytes);
  // Space for what is being written and is in no row yet: count it here.
  [[nodiscard]] CountedBytes begin_counting() { return CountedBytes(in_flight_); }
  [[nodiscard]] int64_t now() const { return now_(); }

 private:
  friend class Upload;
  const DataFolder& folder_;
  Store& store_;
  const BatchOptions& options_;
  const std::function<int64_t()> now_;
  std::atomic<int64_t> stored_{0};
  std::mutex refreshing_;
  std::atomic<int64_t> in_flight_{0};
  std::mutex looking_;  // guards the members below
  std::optional<int64_t> looked_at_;
  int64_t free_bytes_ = 0;                                 // of the disk, then
  std::map<std::string, CountedBytes, std::less<>> work_;  // by batch
};

// A file on its way from a client: the parts of a multipart body, of which "file" goes to the disk
// as it comes and the others are small. Nothing of it stays unless finish() succeeds. Threads: one
// at a time.
class Upload final : private PartSink {
 public:
  // An error is final. kPayloadTooLarge: the file, or all files together, would be too large.
  Status write(std::string_view bytes) { return reader_.feed(bytes, *this); }
  // On the disk when it returns.
  Result<FileObject> finish();

 private:
  friend class Files;
  Upload(Files& files, std::string_view owner, MultipartReader reader)
      : files_(files),
        owner_(owner),
        id_(new_object_id("file-")),
        reader_(std::move(reader)),
        space_(files.begin_counting()) {}

  Status begin_part(const PartHead& head) override;
  Status part_data(std::string_view bytes) override;
  Status end_part() override;
  Status check_count() const;
  Status check_purpose() const;
  Result<std::optional<int64_t>> expires_at(int64_t created_at) const;

  Files& files_;
  std::string owner_;
  std::string id_;
  MultipartReader reader_;
  CountedBytes space_;
  std::optional<NewContent> content_;  // once the file's part has begun
  std::string filename_;
  std::optional<std::string> purpose_;
  std::optional<std::string> expires_anchor_;
  std::optional<std::string> expires_seconds_;
  enum class Part : uint8_t { kFile, kField, kIgnored };
  Part part_ = Part::kIgnored;
  std::optional<std::string>* field_ = nullptr;  // of Part::kField
};

}  // namespace tandem::batches
