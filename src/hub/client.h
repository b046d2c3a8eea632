// Asks a hub for a model's list of files and for files. Redirections are followed; the token goes
// to the hub's own address alone. Failures that may pass are tried again. Threads: a client belongs
// to one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "hub/file_list.h"
#include "hub/http.h"
#include "hub/model_name.h"
#include "hub/options.h"
#include "hub/refusal.h"

namespace tandem::hub {

// What a client reports while it works, on its own thread.
struct ClientHooks {
  std::function<bool()> stop;                       // asked often; true ends what is under way
  std::function<void(const std::string&)> on_note;  // what went wrong and is tried again
  std::function<void(int64_t bytes)> on_bytes;      // received; negative: they were of no use
};

// What the headers of the hub's own addresses said of a file.
struct FileFacts {
  std::string commit;
  std::string checksum;  // of X-Linked-Etag; empty: they name none
  std::string etag;      // an ETag that looks like a checksum, and may be another server's own mark
  std::optional<int64_t> size;
};

// Takes an answer. Its errors are final.
class AnswerReceiver {
 public:
  virtual ~AnswerReceiver() = default;
  virtual Status begin(const HttpHead& head, const FileFacts& facts) = 0;
  virtual Status take(std::string_view bytes) = 0;
};

class Client {
 public:
  // `options` and `name` must outlive it.
  Client(const HubOptions& options, const ModelName& name, ClientHooks hooks);

  // Tries `attempts` times.
  Result<FileList> list_files(int32_t attempts);
  // Asks for what `file` lacks: size, checksum.
  Status complete(const std::string& commit, RemoteFile& file);

  // One request for the content of a file, from `offset` on, with all its redirections. Nullopt:
  // answered with 200 or 206, and `receiver` has it all. Otherwise why not; `status` is that of the
  // last answer, 0 without one.
  std::optional<Refusal> get_file(const std::string& commit, const RemoteFile& file, int64_t offset,
                                  AnswerReceiver& receiver, int& status);

  // Waits; false: stopped.
  [[nodiscard]] bool pause(Nanos time) const;
  [[nodiscard]] const ClientHooks& hooks() const { return hooks_; }
  [[nodiscard]] const HubOptions& options() const { return options_; }
  [[nodiscard]] const ModelName& name() const { return name_; }

 private:
  struct Question {
    std::string method = "GET";
    std::string url;
    std::string range;  // of bytes; empty: all
    std::string file;   // for errors
    Nanos limit{0};     // of each answer; 0: none
  };
  std::optional<Refusal> ask(const Question& question, AnswerReceiver& receiver, int& status);
  Status ask_patiently(const Question& question, int32_t attempts,
                       const std::function<void()>& begin, AnswerReceiver& receiver);
  [[nodiscard]] std::string file_url(const std::string& commit, const std::string& path) const;

  const HubOptions& options_;
  const ModelName& name_;
  ClientHooks hooks_;
  std::string origin_;  // of the hub
  HttpClient http_;
};

}  // namespace tandem::hub
