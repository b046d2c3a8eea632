// Files and batches over sockets: uploads that come in pieces, downloads, keys, refusals.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "api/test_support.h"
#include "batches/service.h"

namespace tandem::api {
namespace {

using nlohmann::json;

std::string form_of(std::string_view file, std::string_view purpose = "batch") {
  return fmt::format(
      "--XY\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{}\r\n--XY\r\n"
      "Content-Disposition: form-data; name=\"file\"; "
      "filename=\"in.jsonl\"\r\n\r\n{}\r\n--XY--\r\n",
      purpose, file);
}

// A file whose opening does not return, as that of a file on a disk that has stalled.
class StalledContent {
 public:
  explicit StalledContent(const std::filesystem::path& content) : path_(content) {
    std::filesystem::remove(path_);
    CHECK(::mkfifo(path_.c_str(), 0600) == 0, "no pipe '{}'", path_.string());
  }
  ~StalledContent() {
    if (held_ < 0) {
      go_on();  // the test has failed: let the server end
    }
    std::filesystem::remove(path_);
    ::close(held_);
  }
  StalledContent(const StalledContent&) = delete;
  StalledContent& operator=(const StalledContent&) = delete;
  void go_on() { held_ = ::open(path_.c_str(), O_RDWR | O_CLOEXEC); }

 private:
  std::filesystem::path path_;
  int held_ = -1;
};

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem_api_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    batches::BatchOptions options;
    options.data_folder = folder_ / "data";
    options.file_bytes = 4 << 20;
    auto opened = batches::Service::open(options, clock_, 1'000'000);
    CHECK(opened.ok(), "{}", opened.error().message);
    service_ = *std::move(opened);
  }
  ~Files() override {
    server_.reset();
    service_.reset();
    std::filesystem::remove_all(folder_);
  }
  void start(ServerOptions options = {}) {
    options.batches = service_.get();
    server_ = std::make_unique<TestServer>(std::move(options));
  }
  ClientResponse ask(std::string_view method, std::string_view path, std::string_view headers = "",
                     std::string_view body = "") {
    Client client(server_->port());
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", method,
                            path, headers, body.size(), body));
    return client.read_response(method);
  }
  ClientResponse upload(std::string_view form, std::string_view headers = "") {
    return ask("POST", "/v1/files",
               fmt::format("Content-Type: multipart/form-data; boundary=XY\r\n{}", headers), form);
  }
  // Each takes a disk thread until the file's content goes on.
  std::vector<std::unique_ptr<Client>> ask_for_content(const std::string& id, int count) {
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < count; ++i) {
      clients.push_back(std::make_unique<Client>(server_->port()));
      clients.back()->get("/v1/files/" + id + "/content");
    }
    EXPECT_EQ(server_->get("/health").status, 200);  // the I/O thread has read them
    return clients;
  }
  [[nodiscard]] bool no_file_is_left() const {
    return std::filesystem::is_empty(folder_ / "data" / "files");
  }

  std::filesystem::path folder_;
  const SteadyClock clock_;
  std::unique_ptr<batches::Service> service_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(Files, AFileComesBackAsItWasSent) {
  start();
  std::string text;
  for (int i = 0; text.size() < (3 << 20); ++i) {
    text += fmt::format("line {}\r\n", i);
  }
  const ClientResponse made = upload(form_of(text));
  ASSERT_EQ(made.status, 200) << made.body;
  const json file = json::parse(made.body);
  EXPECT_EQ(file["bytes"], text.size());
  const std::string path = "/v1/files/" + file["id"].get<std::string>();
  EXPECT_EQ(json::parse(ask("GET", path).body), file);
  const ClientResponse content = ask("GET", path + "/content");
  EXPECT_EQ(content.status, 200);
  EXPECT_EQ(content.headers.at("content-length"), fmt::format("{}", text.size()));
  EXPECT_TRUE(content.body == text);
  EXPECT_EQ(ask("HEAD", path + "/content").headers.at("content-length"),
            fmt::format("{}", text.size()));
  EXPECT_EQ(json::parse(ask("DELETE", path).body)["deleted"], true);
  EXPECT_EQ(ask("GET", path + "/content").status, 404);
  server_->eventually([this] { return no_file_is_left(); });
}

TEST_F(Files, AnUploadMayComeInChunksAndByteByByte) {
  start();
  const std::string form = form_of("{}\n");
  Client client(server_->port());
  client.send(
      "POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
      "Content-Type: multipart/form-data; boundary=XY\r\nExpect: 100-continue\r\n\r\n");
  client.read_until("100 Continue\r\n\r\n");
  for (const char c : form) {
    client.send(fmt::format("1\r\n{}\r\n", c));
  }
  client.send("0\r\n\r\n");
  const ClientResponse made = client.read_response("POST");
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(json::parse(made.body)["bytes"], 3);
  // The connection goes on.
  client.get("/v1/files?limit=1");
  EXPECT_EQ(json::parse(client.read_response().body)["data"].size(), 1U);
}

TEST_F(Files, WhatIsTooLargeIsRefusedAndLeavesNothing) {
  start();
  const ClientResponse by_length = upload(form_of(std::string(5 << 20, 'x')));
  EXPECT_EQ(by_length.status, 413);
  const ClientResponse by_file = upload(form_of(std::string((4 << 20) + 1, 'x')));
  EXPECT_EQ(by_file.status, 413);
  EXPECT_NE(by_file.body.find("--batch-file-size"), std::string::npos);
  server_->eventually([this] { return no_file_is_left(); });
  EXPECT_EQ(upload(form_of(std::string(4 << 20, 'x'))).status, 200);
}

TEST_F(Files, AnAnnouncedLengthBeyondTheLimitIsRefusedBeforeTheBodyIsSent) {
  start();
  for (const int bytes : {4'300'000, 50'000'000}) {
    Client client(server_->port());
    client.send(fmt::format(
        "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
        "Content-Type: multipart/form-data; boundary=XY\r\nExpect: 100-continue\r\n\r\n",
        bytes));
    EXPECT_EQ(client.read_response("POST").status, 413) << bytes;
  }
}

TEST_F(Files, ChunksBeyondTheLimitAreRefusedBeforeTheBodyEnds) {
  start();
  const std::string form = form_of(std::string(5 << 20, 'x'));
  Client client(server_->port());
  client.send(
      "POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
      "Content-Type: multipart/form-data; boundary=XY\r\n\r\n");
  constexpr size_t kChunk = 100'000;
  for (size_t sent = 0; sent < (4 << 20) + kChunk; sent += kChunk) {
    client.send(fmt::format("{:x}\r\n{}\r\n", kChunk, form.substr(sent, kChunk)));
  }
  const ClientResponse refused = client.read_response("POST");
  EXPECT_EQ(refused.status, 413);
  EXPECT_NE(refused.body.find("--batch-file-size"), std::string::npos) << refused.body;
  server_->eventually([this] { return no_file_is_left(); });
}

TEST_F(Files, PartsThatAreNotTheFileAreHeldToTheSameLimit) {
  start();
  const std::string part =
      "--XY\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n" + std::string(5 << 20, 'x');
  Client client(server_->port());
  client.send(
      fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
                  "Content-Type: multipart/form-data; boundary=XY\r\n\r\n{:x}\r\n{}\r\n",
                  part.size(), part));
  EXPECT_EQ(client.read_response("POST").status, 413);
}

TEST_F(Files, HeadersOfRequestsAndPartsAreBounded) {
  start();
  EXPECT_EQ(upload(form_of("{}\n"), "X-Long: " + std::string(40'000, 'h') + "\r\n").status, 431);
  const std::string part = "--XY\r\nX-Long: " + std::string(9'000, 'h') + "\r\n";
  const ClientResponse refused = upload(part + form_of("{}\n"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("a part's headers have more than"), std::string::npos)
      << refused.body;
}

TEST_F(Files, AStalledDiskHoldsUpNoChat) {
  ServerOptions options;
  options.disk.threads = 2;
  start(std::move(options));
  server_->frontend.answer_at_once("x");
  const std::string id = json::parse(upload(form_of("{}\n")).body)["id"];
  StalledContent stalled(folder_ / "data" / "files" / id);
  const auto waiting = ask_for_content(id, 8);  // more than there are threads beside the loop
  EXPECT_EQ(server_->post("/v1/chat/completions", long_chat()).status, 200);
  EXPECT_EQ(server_->get("/metrics").status, 200);
  stalled.go_on();
  for (const auto& client : waiting) {
    EXPECT_EQ(client->read_response().status, 200);
  }
}

TEST_F(Files, UploadsThatWaitForTheDiskHoldABoundedNumberOfBytes) {
  constexpr int64_t kLimit = 300'000;
  constexpr int64_t kRead = 64 * 1024;  // of a connection before it knows what comes
  constexpr int kUploads = 4;
  ServerOptions options;
  options.disk.threads = 2;
  options.limits.max_upload_bytes_held = kLimit;
  start(std::move(options));
  const std::atomic<int64_t>& held = server_->server->metrics().upload_bytes_held;
  const std::string id = json::parse(upload(form_of("{}\n")).body)["id"];
  StalledContent stalled(folder_ / "data" / "files" / id);
  auto clients = ask_for_content(id, 2);
  const std::string form = form_of(std::string(3 << 20, 'x'));
  std::vector<std::thread> senders;
  for (int i = 0; i < kUploads; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    senders.emplace_back([&form, client = clients.back().get()] {
      client->send(
          fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
                      "Content-Type: multipart/form-data; boundary=XY\r\n\r\n{}",
                      form.size(), form));
    });
  }
  server_->eventually([&] { return held >= kLimit; });
  for (int i = 0; i < 20; ++i) {  // the I/O thread has had its turns
    EXPECT_EQ(server_->get("/health").status, 200);
    EXPECT_LE(held, kLimit + (kUploads + 1) * kRead);
  }
  EXPECT_EQ(server_->server->metrics().request_bytes_held, 0) << "chat has memory of its own";
  stalled.go_on();
  for (const auto& client : clients) {
    EXPECT_EQ(client->read_response("POST").status, 200);
  }
  for (std::thread& sender : senders) {
    sender.join();
  }
  server_->eventually([&] { return held == 0; });
}

TEST_F(Files, ManyUploadsThatWaitForTheDiskAreRefused) {
  ServerOptions options;
  options.disk.threads = 2;
  options.limits.max_upload_bytes_held = 50'000;
  start(std::move(options));
  const std::string id = json::parse(upload(form_of("{}\n")).body)["id"];
  StalledContent stalled(folder_ / "data" / "files" / id);
  auto clients = ask_for_content(id, 2);
  const std::string form = form_of(std::string(40'000, 'x'));
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(
        fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
                    "Content-Type: multipart/form-data; boundary=XY\r\n\r\n{}",
                    form.size(), form));
  }
  server_->eventually([this] {
    return server_->get("/metrics").body.find("reason=\"request_memory\"") != std::string::npos;
  });
  EXPECT_LE(server_->server->metrics().upload_bytes_held, 2 * 50'000 + 2 * std::ssize(form));
  stalled.go_on();
  std::map<int, int> statuses;
  for (const auto& client : clients) {
    ++statuses[client->read_response("POST").status];
  }
  EXPECT_GT(statuses[503], 0);
  EXPECT_GT(statuses[200], 2);
  EXPECT_EQ(statuses[200] + statuses[503], 22);
}

// None of them alone has a piece that is worth writing.
TEST_F(Files, UploadsThatFillTheirMemoryTogetherAllEnd) {
  ServerOptions options;
  options.limits.max_upload_bytes_held = 100'000;
  start(std::move(options));
  const std::string form =
      form_of(std::string(40'000, 'x'));  // halves: over the limit, under twice
  const size_t half = form.size() / 2;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(
        fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
                    "Content-Type: multipart/form-data; boundary=XY\r\n\r\n{}",
                    form.size(), form.substr(0, half)));
  }
  for (const auto& client : clients) {
    client->send(form.substr(half));
    EXPECT_EQ(client->read_response("POST").status, 200);
  }
}

TEST_F(Files, TheLimitOfOtherBodiesStaysWhatItWas) {
  ServerOptions options;
  options.limits.http.max_body_bytes = 1000;
  start(std::move(options));
  EXPECT_EQ(ask("POST", "/v1/completions", "", std::string(1001, ' ')).status, 413);
  EXPECT_EQ(ask("POST", "/v1/batches", "", std::string(1001, ' ')).status, 413);
  Client client(server_->port());
  client.send("POST /v1/batches HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
              std::string(1001, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(client.read_response("POST").status, 413);
  EXPECT_EQ(upload(form_of(std::string(5000, 'x'))).status, 200);
}

TEST_F(Files, AWrongPurposeIsRefusedBeforeTheFileHasCome) {
  start();
  Client client(server_->port());
  const std::string form = form_of(std::string(3 << 20, 'x'), "vision");
  client.send(
      fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
                  "Content-Type: multipart/form-data; boundary=XY\r\n\r\n{}",
                  form.size(), form.substr(0, 600'000)));
  const ClientResponse refused = client.read_response("POST");
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(json::parse(refused.body)["error"]["param"], "purpose");
  server_->eventually([this] { return no_file_is_left(); });
}

TEST_F(Files, AnUploadThatIsCutOffLeavesNothing) {
  start();
  const std::string form = form_of(std::string(2 << 20, 'x'));
  {
    Client client(server_->port());
    client.send(
        fmt::format("POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n"
                    "Content-Type: multipart/form-data; boundary=XY\r\n\r\n{}",
                    form.size(), form.substr(0, 1 << 20)));
    server_->eventually([this] { return !no_file_is_left(); });
  }
  server_->eventually([this] { return no_file_is_left(); });
  EXPECT_EQ(upload(form.substr(0, form.size() - 20)).status, 400);  // by its length it is whole
  server_->eventually([this] { return no_file_is_left(); });
}

TEST_F(Files, AClientThatStopsSendingIsTimedOut) {
  ServerOptions options;
  options.limits.body_timeout = std::chrono::milliseconds(50);
  start(std::move(options));
  Client client(server_->port());
  client.send(
      "POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n"
      "Content-Type: multipart/form-data; boundary=XY\r\n\r\n--XY");
  EXPECT_EQ(client.read_response("POST").status, 408);
}

TEST_F(Files, KeysSeeTheirOwn) {
  ServerOptions options;
  options.api_keys = {{.key = "one"}, {.key = "two"}};
  start(std::move(options));
  const std::string one = "Authorization: Bearer one\r\n";
  const std::string two = "Authorization: Bearer two\r\n";
  EXPECT_EQ(upload(form_of("{}\n")).status, 401);
  const json file = json::parse(upload(form_of("{}\n"), one).body);
  const std::string path = "/v1/files/" + file["id"].get<std::string>();
  EXPECT_EQ(ask("GET", path, one).status, 200);
  for (const std::string& hidden : {path, path + "/content", "/v1/batches/" + path.substr(10)}) {
    EXPECT_EQ(ask("GET", hidden, two).status, 404);
  }
  EXPECT_EQ(ask("DELETE", path, two).status, 404);
  EXPECT_TRUE(json::parse(ask("GET", "/v1/files", two).body)["data"].empty());
  const std::string body = json({{"input_file_id", file["id"]},
                                 {"endpoint", "/v1/completions"},
                                 {"completion_window", "24h"}})
                               .dump();
  EXPECT_EQ(ask("POST", "/v1/batches", two, body).status, 404);
  const json batch = json::parse(ask("POST", "/v1/batches", one, body).body);
  EXPECT_EQ(batch["status"], "validating");
  const std::string cancel = "/v1/batches/" + batch["id"].get<std::string>() + "/cancel";
  EXPECT_EQ(ask("POST", cancel, two).status, 404);
  EXPECT_EQ(json::parse(ask("POST", cancel, one).body)["status"], "cancelling");
}

TEST_F(Files, WithoutAFolderTheAnswerNamesTheFlag) {
  TestServer plain;
  for (const char* path : {"/v1/files", "/v1/files/x/content", "/v1/batches?limit=1"}) {
    const ClientResponse refused = plain.get(path);
    EXPECT_EQ(refused.status, 404) << path;
    EXPECT_NE(refused.body.find("--data-folder"), std::string::npos) << path;
  }
}

}  // namespace
}  // namespace tandem::api
