#include "bench/frontend_bench.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "bench/null_frontend.h"
#include "cli/exit_code.h"

namespace tandem::bench {

namespace {

// A thousand words with a space before each, as most tokens of most vocabularies are.
class WordTokenizer final : public text::Tokenizer {
 public:
  WordTokenizer() {
    constexpr std::string_view kSyllables[] = {"ta", "ne", "mo", "ri", "su",
                                               "ka", "lo", "vi", "pe", "do"};
    for (const std::string_view first : kSyllables) {
      for (const std::string_view second : kSyllables) {
        for (const std::string_view third : kSyllables) {
          words_.push_back(fmt::format(" {}{}{}", first, second, third));
        }
      }
    }
    traits_.vocab_size = static_cast<int32_t>(words_.size());
  }
  [[nodiscard]] Result<std::vector<TokenId>> encode(
      std::string_view text, text::EncodeOptions /*options*/) const override {
    return std::vector<TokenId>(text.size() / 6 + 1, 1);
  }
  [[nodiscard]] std::string_view token_bytes(TokenId id) const override {
    return id >= 0 && id < traits_.vocab_size ? std::string_view(words_[static_cast<size_t>(id)])
                                              : std::string_view();
  }
  [[nodiscard]] bool is_special(TokenId /*id*/) const override { return false; }
  [[nodiscard]] std::optional<TokenId> id_of(std::string_view /*token*/) const override {
    return std::nullopt;
  }
  [[nodiscard]] const text::TokenizerTraits& traits() const override { return traits_; }

 private:
  std::vector<std::string> words_;
  text::TokenizerTraits traits_;
};

// Clients on one thread that read and throw away; each asks again on its connection until enough
// was asked.
class Readers {
 public:
  Readers(uint16_t port, const BenchFrontendOptions& options) : left_(options.requests) {
    const std::string body = fmt::format(
        R"({{"messages":[{{"role":"user","content":"hello"}}],"stream":true,"max_tokens":{}}})",
        options.tokens);
    request_ = fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
    for (int32_t i = 0; i < options.connections; ++i) {
      const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      const bool connected = socket >= 0 && ::connect(socket, reinterpret_cast<sockaddr*>(&address),
                                                      sizeof(address)) == 0;
      polls_.push_back({.fd = connected ? socket : -1, .events = POLLIN, .revents = 0});
      tails_.emplace_back();
    }
  }
  ~Readers() {
    for (const pollfd& poll : polls_) {
      if (poll.fd >= 0) {
        ::close(poll.fd);
      }
    }
  }
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Returns the bytes received, or nullopt if a connection failed.
  std::optional<int64_t> run() {
    for (const pollfd& poll : polls_) {
      if (!ask(poll.fd)) {
        return std::nullopt;
      }
    }
    constexpr int kPatienceMillis = 10000;
    while (open_ > 0) {
      if (::poll(polls_.data(), polls_.size(), kPatienceMillis) <= 0) {
        return std::nullopt;
      }
      for (size_t i = 0; i < polls_.size(); ++i) {
        if (polls_[i].revents != 0 && !read(i)) {
          return std::nullopt;
        }
      }
    }
    return bytes_;
  }

 private:
  bool ask(int socket) {
    if (left_ == 0) {
      return true;
    }
    --left_;
    ++open_;
    return ::send(socket, request_.data(), request_.size(), MSG_NOSIGNAL) == std::ssize(request_);
  }

  // An answer has ended when "[DONE]" has passed, which may come in two parts.
  bool read(size_t i) {
    const ssize_t bytes = ::recv(polls_[i].fd, buffer_.data(), buffer_.size(), 0);
    if (bytes <= 0) {
      return false;
    }
    constexpr std::string_view kEnd = "[DONE]\n\n\r\n0\r\n\r\n";
    bytes_ += bytes;
    const std::string_view came(buffer_.data(), static_cast<size_t>(bytes));
    std::string& tail = tails_[i];
    tail += came.substr(came.size() - std::min(came.size(), kEnd.size()));
    if (tail.size() > kEnd.size()) {
      tail.erase(0, tail.size() - kEnd.size());
    }
    if (tail != kEnd) {
      return true;
    }
    tail.clear();
    --open_;
    return ask(polls_[i].fd);
  }

  std::string request_;
  std::vector<pollfd> polls_;
  std::vector<std::string> tails_;
  std::array<char, 256 * 1024> buffer_{};
  int32_t left_;
  int32_t open_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace

int bench_frontend(const BenchFrontendOptions& options) {
  if (const Status quiet = log::start("warning"); !quiet.ok()) {  // no line for each request
    return 1;
  }
  if (options.with_hostile) {
    return bench_hostile(options.hostile);
  }
  const WordTokenizer tokenizer;
  const text::ChatTemplate chat_template = text::ChatTemplate::plain({});
  if (options.with_crowd) {
    ServedModel model;
    model.names = {"null"};
    model.vocabulary = tokenizer.vocab_size();
    return bench_crowd(options.crowd, model, tokenizer, chat_template);
  }
  NullFrontendOptions null_options;
  null_options.model.names = {"null"};
  null_options.model.max_model_len = options.tokens + 1024;
  null_options.model.vocabulary = tokenizer.vocab_size();
  for (TokenId id = 0; id < tokenizer.vocab_size(); id += 7) {
    null_options.script.push_back(id);
  }
  NullFrontend frontend(std::move(null_options));
  api::ServerOptions server_options;
  server_options.port = 0;
  server_options.limits.max_connections = options.connections + 8;
  auto started = api::Server::start(server_options, {{.frontend = frontend,
                                                      .tokenizer = tokenizer,
                                                      .chat_template = chat_template,
                                                      .defaults = {}}});
  if (!started.ok()) {
    log::error("{}", started.error().message);
    return cli::exit_code_of(started.error().code);
  }
  const std::unique_ptr<api::Server> server = std::move(started).value();
  frontend.start([&metrics = server->metrics()] {
    constexpr int64_t kMostUnsentBytes = 8 * 1024 * 1024;
    return metrics.pending_deliveries > 1 || metrics.unsent_bytes > kMostUnsentBytes;
  });

  const SteadyClock clock;
  auto readers = std::make_unique<Readers>(server->port(), options);
  const Nanos began = clock.now();
  const Nanos worked_before = server->io_thread_time();
  const std::optional<int64_t> bytes = readers->run();
  const double wall_seconds = to_seconds(clock.now() - began);
  const double work_seconds = to_seconds(server->io_thread_time() - worked_before);
  if (!bytes) {
    log::error("a connection to the server failed");
    return 1;
  }
  const double tokens = static_cast<double>(options.requests) * options.tokens;
  fmt::print("front end, null model: {} connections, {} answers of {} tokens\n",
             options.connections, options.requests, options.tokens);
  fmt::print(
      "  {:.0f} streamed tokens/s of I/O thread time ({:.2f} s), {:.0f}/s by the clock ({:.2f} "
      "s)\n",
      tokens / work_seconds, work_seconds, tokens / wall_seconds, wall_seconds);
  fmt::print("  {:.0f} bytes a token, {:.1f} tokens a step\n", static_cast<double>(*bytes) / tokens,
             tokens / static_cast<double>(frontend.steps()));
  return 0;
}

}  // namespace tandem::bench
