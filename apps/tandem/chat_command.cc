// `tandem chat`: a conversation with a running server, in the terminal.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "chat/conversation.h"
#include "chat/terminal_text.h"
#include "commands.h"
#include "hub/http.h"
#include "loadgen/stream_chunk.h"
#include "loadgen/url.h"

namespace tandem {
namespace {

constexpr int kExitInterrupted = 130;  // as shells report Ctrl-C

struct ChatFlags {
  std::string url = "http://127.0.0.1:8000";
  std::string ca_file;
  chat::ConversationOptions conversation;
};

// Ctrl-C, which ends what is under way and not the program. SIGPIPE is ignored from then on.
class Interrupts {
 public:
  Interrupts() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    descriptor_ = ::signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  ~Interrupts() {
    if (descriptor_ >= 0) {
      ::close(descriptor_);
    }
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // True: it came since the last call.
  [[nodiscard]] bool take() const {
    signalfd_siginfo info{};
    bool came = false;
    while (::read(descriptor_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      came = true;
    }
    return came;
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// Lines of standard input.
class Lines {
 public:
  enum class Got { kLine, kInterrupt, kEnd };
  Got next(std::string& line, const Interrupts& interrupts) {
    while (true) {
      if (const size_t end = held_.find('\n'); end != held_.npos) {
        line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return Got::kLine;
      }
      std::array<pollfd, 2> waiting{
          {{STDIN_FILENO, POLLIN, 0}, {interrupts.descriptor(), POLLIN, 0}}};
      ::poll(waiting.data(), waiting.size(), -1);
      if (interrupts.take()) {
        held_.clear();  // as the terminal did with what was typed
        return Got::kInterrupt;
      }
      if (waiting[0].revents == 0) {
        continue;
      }
      std::array<char, 4096> buffer{};
      const ssize_t bytes = ::read(STDIN_FILENO, buffer.data(), buffer.size());
      if (bytes <= 0) {
        line = std::exchange(held_, {});
        return line.empty() ? Got::kEnd : Got::kLine;
      }
      held_.append(buffer.data(), static_cast<size_t>(bytes));
    }
  }

 private:
  std::string held_;
};

void show(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}
bool cannot_show() { return std::ferror(stdout) != 0; }

// To standard error. Not fmt::print, which throws when the terminal is closed.
void say(const std::string& text) { std::fputs(text.c_str(), stderr); }

void say_error(const Error& error) {
  say(fmt::format("tandem chat: {}\n", printable(error.message)));
}

std::string text_of_variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): at start
  std::string text(value == nullptr ? "" : value);
  constexpr const char* kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? std::string()
                            : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// The headers that carry the key. OPENAI_API_KEY is usually one for another server: it is sent to
// this machine, and elsewhere only with encryption.
Result<std::vector<std::string>> key_headers(const std::string& url) {
  std::string key = text_of_variable("TANDEM_API_KEY");
  if (key.empty()) {
    key = text_of_variable("OPENAI_API_KEY");
    if (!key.empty() && !hub::is_loopback(url) && !url.starts_with("https://")) {
      say("tandem chat: OPENAI_API_KEY is not sent without encryption; a key for this server goes "
          "into TANDEM_API_KEY\n");
      key.clear();
    }
  }
  if (std::ranges::any_of(key, [](char c) { return c <= ' ' || c > '~'; })) {
    return invalid_argument(
        "TANDEM_API_KEY or OPENAI_API_KEY holds a blank, or a character that no key has",
        "TANDEM_API_KEY");
  }
  return key.empty() ? std::vector<std::string>()
                     : std::vector<std::string>{"Authorization: Bearer " + key};
}

// An answer on its way to the terminal; or the body of an error.
class ShownAnswer final : public hub::HttpListener {
 public:
  ShownAnswer(chat::Answer& answer, const Clock& clock) : answer_(answer), clock_(clock) {}

  bool on_head(const hub::HttpHead& head) override {
    status_ = head.status;
    return true;
  }
  bool on_body(std::string_view bytes) override {
    if (status_ != hub::kHttpOk) {
      constexpr size_t kMaxErrorBytes = 64 << 10;
      error_ += bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_.size()));
      return error_.size() < kMaxErrorBytes;
    }
    result_ = answer_.feed(bytes, clock_.now(),
                           [this](std::string_view text) { show(terminal_.feed(text)); });
    last_ = clock_.now();
    return result_.ok() && !cannot_show();
  }
  // True: the server said that the answer is over, and had time to end the transfer, so that the
  // connection can be used again.
  [[nodiscard]] bool is_over() const {
    constexpr Nanos kTimeToEnd = std::chrono::milliseconds(200);
    return answer_.ended() && clock_.now() - last_ > kTimeToEnd;
  }
  void finish() { show(terminal_.finish()); }

  [[nodiscard]] int status() const { return status_; }
  [[nodiscard]] const std::string& error() const { return error_; }
  [[nodiscard]] const Status& result() const { return result_; }

 private:
  chat::Answer& answer_;
  const Clock& clock_;
  chat::TerminalText terminal_;
  Nanos last_{0};
  int status_ = 0;
  std::string error_;
  Status result_;
};

class Chat {
 public:
  // `headers` go with each request.
  Chat(const ChatFlags& flags, loadgen::Url url, std::vector<std::string> headers,
       const Interrupts& interrupts)
      : interrupts_(interrupts),
        url_(std::move(url)),
        options_(flags.conversation),
        conversation_(options_),
        headers_(std::move(headers)),
        http_({.silence = std::chrono::minutes(10), .ca_file = flags.ca_file}) {}

  // Takes the first model of the server unless one is named.
  Status choose_model() {
    TextAnswer answer;
    const hub::HttpOutcome outcome = http_.perform({.url = target("/models"), .headers = headers_},
                                                   answer, [this] { return is_stopped(); });
    RETURN_IF_ERROR(checked(outcome, answer.status, answer.text));
    ASSIGN_OR_RETURN(const std::vector<std::string> ids, chat::model_ids(answer.text));
    if (options_.model.empty()) {
      options_.model = ids.front();
    } else if (std::ranges::find(ids, options_.model) == ids.end()) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("the server at {} has no model '{}'; it has {}", url_.text(),
                               options_.model, chat::TerminalText().feed(ids.front())),
                   "model"};
    }
    conversation_ = chat::Conversation(options_);
    return {};
  }

  // Answers `question`. What was said of an answer that broke off stays part of the conversation.
  Status reply_to(const std::string& question) {
    conversation_.ask(question);
    stopped_ = false;
    chat::Answer answer(clock_.now());
    ShownAnswer shown(answer, clock_);
    std::vector<std::string> headers = headers_;
    headers.emplace_back("Content-Type: application/json");
    const hub::HttpOutcome outcome =
        http_.perform({.method = "POST",
                       .url = target("/chat/completions"),
                       .headers = std::move(headers),
                       .body = conversation_.request_body()},
                      shown, [&] { return shown.is_over() || is_stopped(); });
    shown.finish();
    const bool stopped = outcome.failure == hub::HttpFailure::kStopped && !answer.ended();
    Status status = shown.result();
    if (status.ok() && cannot_show()) {
      status = Error{ErrorCode::kIo, "the answer cannot be written to standard output", {}};
    } else if (status.ok() && !stopped && !answer.ended()) {
      status = checked(outcome, shown.status(), shown.error());
      if (status.ok()) {
        status = Error{ErrorCode::kUnavailable, "the answer ended before its end", {}};
      }
    }
    if (answer.has_begun()) {
      show("\n");
    }
    if (!answer.text().empty()) {
      conversation_.answered(answer.text());
    } else {
      conversation_.forget_question();
    }
    if (const std::string summary = answer.summary(); !summary.empty()) {
      say(fmt::format("[{}{}]\n", stopped ? "stopped; " : "", summary));
    }
    return status;
  }
  // True: Ctrl-C ended the last request.
  [[nodiscard]] bool stopped() const { return stopped_; }

  void restart() { conversation_.restart(); }
  [[nodiscard]] const std::string& model() const { return options_.model; }

 private:
  struct TextAnswer final : hub::HttpListener {
    bool on_head(const hub::HttpHead& head) override {
      status = head.status;
      return true;
    }
    bool on_body(std::string_view bytes) override {
      constexpr size_t kMaxBytes = size_t{4} << 20;
      text += bytes;
      return text.size() <= kMaxBytes;
    }
    int status = 0;
    std::string text;
  };

  [[nodiscard]] std::string target(std::string_view route) const {
    return fmt::format("{}{}{}", url_.text(), url_.path.empty() ? "/v1" : "", route);
  }
  [[nodiscard]] Status checked(const hub::HttpOutcome& outcome, int status,
                               std::string_view body) const {
    // Refused by the listener: the body is too long to read on.
    const bool is_long_error =
        outcome.failure == hub::HttpFailure::kRefused && status != hub::kHttpOk;
    if (outcome.failure == hub::HttpFailure::kUntrusted) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("the certificate of {} is not trusted: {}; name the PEM file of who "
                               "signed it with --cacert",
                               url_.text(), outcome.message),
                   {}};
    }
    if (outcome.failure != hub::HttpFailure::kNone && !is_long_error) {
      return Error{ErrorCode::kUnavailable,
                   fmt::format("no answer from {}: {}; start a server with tandem serve, or name "
                               "another with --url",
                               url_.text(), outcome.message),
                   {}};
    }
    if (status == hub::kHttpOk) {
      return {};
    }
    constexpr int kUnauthorized = 401;
    return Error{
        ErrorCode::kUnavailable,
        fmt::format("the server answers with status {}: {}{}", status, loadgen::error_message(body),
                    status == kUnauthorized ? "; set TANDEM_API_KEY to a key of it" : ""),
        {}};
  }

  bool is_stopped() {
    stopped_ = stopped_ || interrupts_.take();
    return stopped_;
  }

  const Interrupts& interrupts_;
  bool stopped_ = false;
  const SteadyClock clock_;
  loadgen::Url url_;
  chat::ConversationOptions options_;
  chat::Conversation conversation_;
  std::vector<std::string> headers_;
  hub::HttpClient http_;
};

// Asks what the lines of standard input say until they end; the exit code.
int converse(Chat& chat, const Interrupts& interrupts) {
  const bool is_terminal = ::isatty(STDIN_FILENO) == 1;
  Lines lines;
  std::string line;
  bool failed = false;
  while (!cannot_show()) {
    if (is_terminal) {
      show("> ");
    }
    const Lines::Got got = lines.next(line, interrupts);
    if (got == Lines::Got::kEnd) {
      break;
    }
    if (got == Lines::Got::kInterrupt) {
      if (!is_terminal) {
        return kExitInterrupted;
      }
      say("\n(Ctrl-D ends)\n");
    } else if (line == "/new") {
      chat.restart();
      say("(a new conversation)\n");
    } else if (line.find_first_not_of(" \t\r") != line.npos) {
      const Status answered = chat.reply_to(line);
      failed = !answered.ok();
      if (failed) {
        say_error(answered.error());
      }
      if (chat.stopped() && !is_terminal) {
        return kExitInterrupted;
      }
    }
  }
  if (is_terminal) {
    show("\n");
  }
  return cannot_show() || (failed && !is_terminal) ? 1 : 0;
}

Result<int> run_chat(const ChatFlags& flags) {
  ASSIGN_OR_RETURN(loadgen::Url url, loadgen::parse_url(flags.url));
  RETURN_IF_ERROR(hub::require_libcurl());
  ASSIGN_OR_RETURN(std::vector<std::string> headers, key_headers(url.text()));
  const Interrupts interrupts;
  Chat chat(flags, std::move(url), std::move(headers), interrupts);
  const Status chosen = chat.choose_model();
  if (chat.stopped()) {
    return kExitInterrupted;
  }
  RETURN_IF_ERROR(chosen);
  chat::TerminalText name;
  say(fmt::format("{}: Ctrl-C stops an answer, /new begins anew, Ctrl-D ends\n",
                  name.feed(chat.model())));
  return converse(chat, interrupts);
}

}  // namespace

RunCommand describe_chat(cli::Command app) {
  auto flags = std::make_shared<ChatFlags>();
  chat::ConversationOptions& options = flags->conversation;
  app.add_option("model", options.model, "Name of the model (default: the server's first)");
  app.add_option("--url", flags->url, "Address of the server").capture_default_str();
  app.add_option("--class", options.service_class,
                 "Class of the requests (default: the server's, --default-class)")
      .one_of({"latency_sensitive", "best_effort"});
  app.add_option("--system", options.system, "System message, before the conversation");
  app.add_option("--max-tokens", options.max_tokens, "Tokens of an answer (default: the server's)")
      .in_range(int32_t{1}, int32_t{1} << 20);
  app.add_option("--temperature", options.temperature,
                 "0: the likeliest token (default: the server's)")
      .in_range(0.0, 2.0);
  app.add_option("--cacert", flags->ca_file,
                 "PEM file of who signs the server's certificate (default: the system's)");
  app.let_last_win();
  app.footer(
      "\nThe key is taken from TANDEM_API_KEY or OPENAI_API_KEY. Answers go to standard output, "
      "times\n"
      "to standard error. Without a terminal, each line of standard input is a question.");
  return [flags] {
    const Result<int> code = run_chat(*flags);
    if (code.ok()) {
      return *code;
    }
    say_error(code.error());
    return code.error().code == ErrorCode::kInvalidArgument ? 2 : 1;
  };
}

}  // namespace tandem
