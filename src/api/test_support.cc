#include "api/test_support.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "base/check.h"

namespace tandem::api {

namespace {
constexpr std::chrono::seconds kPatience{20};
}  // namespace

// ---------------------------------------------------------------- FakeFrontend

Submission FakeFrontend::submit(Request request) {
  size_t position = 0;
  {
    const std::scoped_lock lock(mutex_);
    position = requests_.size();
  }
  if (gate_) {
    if (const Status open = gate_(position); !open.ok()) {
      return open.error();
    }
  }
  {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(std::make_unique<Request>(std::move(request)));
  }
  changed_.notify_all();
  if (instant_) {
    std::vector<TokenEvent> events = openai::text_events(*instant_);
    events.push_back(openai::finish_event(FinishReason::kLength));
    emit(position, std::move(events));
  }
  return RequestId{static_cast<int64_t>(position)};
}

void FakeFrontend::cancel(RequestId request) {
  {
    const std::scoped_lock lock(mutex_);
    cancels_.push_back(request);
  }
  changed_.notify_all();
}

void FakeFrontend::stop(RequestId request, int32_t choice) {
  {
    const std::scoped_lock lock(mutex_);
    stops_.push_back({request, choice});
  }
  changed_.notify_all();
}

template <class Condition>
void FakeFrontend::wait(std::unique_lock<std::mutex>& lock, Condition condition) {
  CHECK(changed_.wait_for(lock, kPatience, condition), "waited in vain");
}

Request& FakeFrontend::request(size_t n) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return requests_.size() > n; });
  return *requests_[n];
}

void FakeFrontend::wait_for_cancels(size_t count) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return cancels_.size() >= count; });
}

void FakeFrontend::wait_for_stops(size_t count) {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return stops_.size() >= count; });
}

size_t FakeFrontend::submitted() const {
  const std::scoped_lock lock(mutex_);
  return requests_.size();
}

std::vector<FakeFrontend::Choice> FakeFrontend::stops() const {
  const std::scoped_lock lock(mutex_);
  return stops_;
}

void FakeFrontend::emit(size_t n, std::vector<TokenEvent> events) {
  const Request& to = request(n);
  for (TokenEvent& event : events) {
    event.request = RequestId{static_cast<int64_t>(n)};
    event.tag = to.sink_tag;
  }
  to.sink->deliver(std::move(events));
}

void FakeFrontend::emit_finish(size_t n, FinishReason reason) {
  std::vector<TokenEvent> events;
  for (int32_t choice = 0; choice < request(n).n; ++choice) {
    events.push_back(openai::finish_event(reason, choice));
  }
  emit(n, std::move(events));
}

// ---------------------------------------------------------------- Client

Client::Client(uint16_t port, int receive_buffer_bytes)
    : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  CHECK(socket_ >= 0, "no socket");
  if (receive_buffer_bytes > 0) {
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof(int));
  }
  const timeval patience{.tv_sec = kPatience.count(), .tv_usec = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
        "cannot connect to port {}", port);
}

Client::~Client() { close(); }

void Client::close() {
  if (socket_ >= 0) {
    ::close(std::exchange(socket_, -1));
  }
}

void Client::reset_on_close() {
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

// A server that has answered and closed may refuse the rest: that is for read_response() to see.
void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) {
      return;
    }
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void Client::get(std::string_view path, std::string_view headers) {
  send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}\r\n", path, headers));
}

void Client::post(std::string_view path, std::string_view body, std::string_view headers) {
  send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n{}", path,
                   body.size(), headers, body));
}

bool Client::read_more() {
  std::array<char, 16384> buffer;  // NOLINT: filled by recv
  const ssize_t bytes = ::recv(socket_, buffer.data(), buffer.size(), 0);
  if (bytes <= 0) {
    EXPECT_TRUE(bytes == 0 || errno == ECONNRESET) << "no answer in time";
    return false;
  }
  received_.append(buffer.data(), static_cast<size_t>(bytes));
  return true;
}

std::string Client::read_until(std::string_view end) {
  size_t at = 0;
  while ((at = received_.find(end)) == std::string::npos) {
    if (!read_more()) {
      ADD_FAILURE() << "closed before '" << end << "', after: " << received_;
      return std::exchange(received_, "");
    }
  }
  std::string text = received_.substr(0, at + end.size());
  received_.erase(0, at + end.size());
  return text;
}

ClientResponse Client::read_response(std::string_view method) {
  ClientResponse response;
  const std::string head = read_until("\r\n\r\n");
  if (head.size() < 12) {
    return response;
  }
  response.status = std::stoi(head.substr(9, 3));
  for (size_t begin = head.find("\r\n") + 2; begin + 2 < head.size();) {
    const size_t end = head.find("\r\n", begin);
    const std::string line = head.substr(begin, end - begin);
    const size_t colon = line.find(": ");
    std::string name = line.substr(0, colon);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    response.headers[name] = line.substr(colon + 2);
    begin = end + 2;
  }
  if (method == "HEAD") {
    return response;
  }
  if (response.headers.contains("transfer-encoding")) {
    while (true) {
      const size_t bytes = std::stoul(read_until("\r\n"), nullptr, 16);
      while (received_.size() < bytes + 2 && read_more()) {
      }
      response.body += received_.substr(0, bytes);
      received_.erase(0, bytes + 2);
      if (bytes == 0) {
        return response;
      }
    }
  }
  if (response.headers.contains("content-length")) {
    const size_t bytes = std::stoul(response.headers["content-length"]);
    while (received_.size() < bytes && read_more()) {
    }
    response.body = received_.substr(0, bytes);
    received_.erase(0, bytes);
    return response;
  }
  while (read_more()) {
  }
  response.body = std::exchange(received_, "");
  return response;
}

bool Client::closed_by_server() {
  while (read_more()) {
  }
  return true;
}

// ---------------------------------------------------------------- Gate

std::chrono::local_seconds Gate::pass() {
  std::unique_lock lock(mutex_);
  ++arrived_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return passed_ < allowed_; });
  ++passed_;
  return {};
}

void Gate::wait_for_arrivals(int count) {
  std::unique_lock lock(mutex_);
  CHECK(changed_.wait_for(lock, kPatience, [&] { return arrived_ >= count; }), "waited in vain");
}

void Gate::let_through(int count) {
  const std::scoped_lock lock(mutex_);
  allowed_ += count;
  changed_.notify_all();
}

void Gate::open() {
  const std::scoped_lock lock(mutex_);
  allowed_ = std::numeric_limits<int>::max();
  changed_.notify_all();
}

std::string long_chat() {
  return R"({"messages":[{"role":"user","content":"hi"}],"user":")" + std::string(5000, 'u') +
         "\"}";
}

// ---------------------------------------------------------------- TestServer

std::unique_ptr<Server> start_server(ServerOptions options,
                                     const std::vector<openai::ModelServices>& models) {
  options.port = 0;
  options.tick = std::chrono::milliseconds(5);
  options.unix_seconds = [] { return int64_t{1234}; };
  auto started = Server::start(std::move(options), models);
  CHECK(started.ok(), "{}", started.error().message);
  return std::move(started).value();
}

TestServer::TestServer(ServerOptions options) {
  server = start_server(std::move(options), {{.frontend = frontend,
                                              .tokenizer = test_model.tokenizer,
                                              .chat_template = test_model.chat_template,
                                              .defaults = {}}});
}

ClientResponse TestServer::get(std::string_view path, std::string_view headers) {
  Client client(port());
  client.get(path, headers);
  return client.read_response();
}

ClientResponse TestServer::post(std::string_view path, std::string_view body,
                                std::string_view headers) {
  Client client(port());
  client.post(path, body, headers);
  return client.read_response();
}

void TestServer::eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "waited in vain";
    std::this_thread::yield();
  }
}

}  // namespace tandem::api
