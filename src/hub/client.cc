#include "hub/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <thread>
#include <utility>

#include "base/printable.h"
#include "base/units.h"
#include "hub/cache.h"
#include "hub/checksum.h"

namespace tandem::hub {
namespace {

constexpr int kMaxRedirections = 8;
constexpr int kRedirections = 300;
constexpr int kClientErrors = 400;
constexpr Nanos kListLimit = std::chrono::minutes(2);  // of lists and heads, which are short
constexpr int32_t kMinRate = 1024;                     // bytes per second

std::optional<int64_t> parse_length(std::string_view text) {
  int64_t length = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool is_number =
      !text.empty() && code == std::errc() && end == text.data() + text.size() && length >= 0;
  return is_number ? std::optional(length) : std::nullopt;
}

// What the headers of one of the hub's own answers add.
void add_facts(const HttpHead& head, FileFacts& facts) {
  if (const std::string_view commit = head.header("x-repo-commit"); !commit.empty()) {
    facts.commit = printable(commit, kMaxShownBytes);
  }
  if (std::string linked = checksum_of_etag(head.header("x-linked-etag")); !linked.empty()) {
    facts.checksum = std::move(linked);
  }
  if (facts.etag.empty()) {
    facts.etag = checksum_of_etag(head.header("etag"));
  }
  if (const auto size = parse_length(head.header("x-linked-size"))) {
    facts.size = size;
  } else if (head.status == kHttpOk && !facts.size) {
    facts.size = parse_length(head.header("content-length"));
  }
}

// One of the answers that a question leads to.
class Hop final : public HttpListener {
 public:
  Hop(FileFacts& facts, bool is_of_hub, AnswerReceiver& receiver)
      : facts_(facts), is_of_hub_(is_of_hub), receiver_(receiver) {}

  bool on_head(const HttpHead& head) override {
    head_ = head;
    if (is_of_hub_) {
      add_facts(head, facts_);
    }
    if (head.status == kHttpOk || head.status == kHttpPartial) {
      begun_ = true;
      result_ = receiver_.begin(head, facts_);
    }
    return result_.ok();
  }
  bool on_body(std::string_view bytes) override {
    if (begun_) {
      result_ = receiver_.take(bytes);
    } else {
      passed_over_ += bytes.size();  // of a redirection or an error: short
    }
    constexpr size_t kMaxPassedOver = size_t{1} << 20;
    return result_.ok() && passed_over_ <= kMaxPassedOver;
  }

  [[nodiscard]] const HttpHead& head() const { return head_; }
  [[nodiscard]] const Status& result() const { return result_; }
  [[nodiscard]] bool redirects() const {
    return head_.status >= kRedirections && head_.status < kClientErrors &&
           !head_.header("location").empty();
  }

 private:
  FileFacts& facts_;
  bool is_of_hub_;
  AnswerReceiver& receiver_;
  HttpHead head_;
  Status result_;
  bool begun_ = false;
  size_t passed_over_ = 0;
};

// Keeps a short answer.
class TextReceiver final : public AnswerReceiver {
 public:
  Status begin(const HttpHead&, const FileFacts& facts) override {
    facts_ = facts;
    return {};
  }
  Status take(std::string_view bytes) override {
    if (static_cast<int64_t>(text_.size() + bytes.size()) > kMaxFileListBytes) {
      return Error{ErrorCode::kIo,
                   fmt::format("the hub's list of files is longer than {}; is HF_ENDPOINT the "
                               "address of a hub?",
                               format_bytes(kMaxFileListBytes)),
                   {}};
    }
    text_ += bytes;
    return {};
  }
  void reset() { text_.clear(); }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] const FileFacts& facts() const { return facts_; }

 private:
  std::string text_;
  FileFacts facts_;
};

Refusal final_refusal(Error error) {
  return {.error = std::move(error), .retry = false, .retry_after = {}};
}

}  // namespace

Client::Client(const HubOptions& options, const ModelName& name, ClientHooks hooks)
    : options_(options),
      name_(name),
      hooks_(std::move(hooks)),
      origin_(origin_of(options.endpoint)),
      http_({.silence = options.silence, .min_rate = kMinRate, .ca_file = options.ca_file}) {}

std::optional<Refusal> Client::ask(const Question& question, AnswerReceiver& receiver,
                                   int& status) {
  status = 0;
  FileFacts facts;
  std::string url = question.url;
  for (int hop = 0; hop <= kMaxRedirections; ++hop) {
    HttpRequest request{.method = question.method, .url = url, .limit = question.limit};
    request.headers = {"Accept-Encoding: identity"};  // sizes and checksums are of the file itself
    if (!question.range.empty()) {
      request.headers.push_back("Range: bytes=" + question.range);
    }
    const bool is_of_hub = origin_of(url) == origin_;
    if (is_of_hub && !options_.token.empty()) {
      request.headers.push_back("Authorization: Bearer " + options_.token);
    }
    Hop answer(facts, is_of_hub, receiver);
    const HttpOutcome outcome = http_.perform(request, answer, hooks_.stop);
    status = answer.head().status;
    if (!answer.result().ok()) {
      return final_refusal(answer.result().error());
    }
    if (outcome.failure == HttpFailure::kStopped) {
      return final_refusal(stopped_error());
    }
    // Refused by the Hop itself: the body of a redirection or an error is too long to read on.
    if (outcome.failure != HttpFailure::kNone && outcome.failure != HttpFailure::kRefused) {
      return explain_failure(outcome, options_);
    }
    if (!answer.redirects()) {
      if (status == kHttpOk || status == kHttpPartial) {
        return std::nullopt;
      }
      const bool gated = answer.head().header("x-error-code") == "GatedRepo";
      return is_of_hub || gated ? explain_status(answer.head(), name_, question.file, options_)
                                : explain_status_elsewhere(answer.head(), url);
    }
    Result<std::string> target = redirected(url, std::string(answer.head().header("location")));
    if (!target.ok()) {
      return final_refusal(target.error());
    }
    url = *std::move(target);
  }
  return final_refusal(
      {ErrorCode::kIo, fmt::format("the hub at {} redirects in a circle", options_.endpoint), {}});
}

bool Client::pause(Nanos time) const {
  constexpr Nanos kSlice = std::chrono::milliseconds(50);
  for (; time > Nanos{0}; time -= kSlice) {
    if (hooks_.stop()) {
      return false;
    }
    std::this_thread::sleep_for(std::min(time, kSlice));
  }
  return !hooks_.stop();
}

Status Client::ask_patiently(const Question& question, int32_t attempts,
                             const std::function<void()>& begin, AnswerReceiver& receiver) {
  HubOptions patience = options_;
  patience.attempts = attempts;
  Attempts tried(patience);
  while (true) {
    begin();
    int status = 0;
    const std::optional<Refusal> refusal = ask(question, receiver, status);
    if (!refusal) {
      return {};
    }
    const auto wait = tried.next_pause(*refusal, /*brought_bytes=*/false);
    if (!wait) {
      return refusal->error;
    }
    hooks_.on_note(fmt::format("the hub at {}: {}; trying again in {}", options_.endpoint,
                               refusal->cause, format_duration(*wait)));
    if (!pause(*wait)) {
      return stopped_error();
    }
  }
}

Result<FileList> Client::list_files(int32_t attempts) {
  TextReceiver answer;
  const Question question{
      .url = fmt::format("{}/api/models/{}/revision/{}?blobs=true", options_.endpoint,
                         url_path(name_.repository), url_part(name_.revision)),
      .limit = std::max(kListLimit, options_.silence)};
  RETURN_IF_ERROR(ask_patiently(
      question, attempts, [&answer] { answer.reset(); }, answer));
  ASSIGN_OR_RETURN(FileList list, parse_file_list(answer.text()));
  if (is_commit(name_.revision) && list.commit != name_.revision) {
    return Error{ErrorCode::kIo,
                 fmt::format("the hub lists the commit {} where {} was asked for", list.commit,
                             name_.revision),
                 "model"};
  }
  return list;
}

Status Client::complete(const std::string& commit, RemoteFile& file) {
  if (file.size && !file.checksum.empty()) {
    return {};
  }
  TextReceiver answer;
  const Question question{.method = "HEAD",
                          .url = file_url(commit, file.path),
                          .file = file.path,
                          .limit = std::max(kListLimit, options_.silence)};
  RETURN_IF_ERROR(ask_patiently(
      question, options_.attempts, [&answer] { answer.reset(); }, answer));
  if (!file.size) {
    file.size = answer.facts().size;
  }
  if (file.checksum.empty()) {
    const FileFacts& facts = answer.facts();
    file.checksum = facts.checksum.empty() ? facts.etag : facts.checksum;
  }
  if (!file.size || *file.size > kMaxFileBytes || file.checksum.empty()) {
    return Error{ErrorCode::kIo,
                 fmt::format("the hub names no size or no checksum of '{}', so that what comes "
                             "cannot be checked; is HF_ENDPOINT the address of a hub?",
                             file.path),
                 {}};
  }
  return {};
}

std::optional<Refusal> Client::get_file(const std::string& commit, const RemoteFile& file,
                                        int64_t offset, AnswerReceiver& receiver, int& status) {
  const Question question{.url = file_url(commit, file.path),
                          .range = offset > 0 ? fmt::format("{}-", offset) : std::string(),
                          .file = file.path};
  return ask(question, receiver, status);
}

std::string Client::file_url(const std::string& commit, const std::string& path) const {
  return fmt::format("{}/{}/resolve/{}/{}", options_.endpoint, url_path(name_.repository), commit,
                     url_path(path));
}

}  // namespace tandem::hub
