// Certificates and keys, good and bad, and the server under TLS over a real socket.
#include "api/tls.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "api/test_files.h"
#include "api/test_support.h"

namespace tandem::api {
namespace {

class TlsFilesTest : public ::testing::Test {
 protected:
  TlsFilesTest() {
    std::signal(SIGPIPE, SIG_IGN);
    write_key(files_.key, key_.get());
    write_certificate(files_.certificate, key_.get());
  }
  [[nodiscard]] std::string problem() const {
    const auto tls = TlsContext::load(files_);
    return tls.ok() ? "" : tls.error().message;
  }

  const TempFolder folder_;
  const PrivateKey key_ = make_key();
  TlsFiles files_{.certificate = folder_.file("cert.pem"), .key = folder_.file("key.pem")};
};

TEST_F(TlsFilesTest, APairIsTaken) {
  EXPECT_EQ(problem(), "");
  EXPECT_NEAR(static_cast<double>(TlsContext::load(files_).value()->valid_for().count()), 30 * 24,
              1);
}

TEST_F(TlsFilesTest, OneFileMayHoldBoth) {
  std::ifstream certificate(files_.certificate);
  std::ifstream key(files_.key);
  std::ofstream(folder_.file("both.pem")) << certificate.rdbuf() << key.rdbuf();
  files_ = {.certificate = folder_.file("both.pem")};
  EXPECT_EQ(problem(), "");
}

TEST_F(TlsFilesTest, AbsentAndBrokenFilesAreNamedWithTheCause) {
  files_.certificate = folder_.file("absent.pem");
  EXPECT_NE(problem().find("absent.pem: cannot be read: No such file"), std::string::npos)
      << problem();
  files_.certificate = folder_.write("noise.pem", "noise");
  EXPECT_NE(problem().find("noise.pem: holds no usable certificate"), std::string::npos);
  write_certificate(files_.certificate, key_.get());
  files_.key = folder_.file("absent.key");
  EXPECT_NE(problem().find("--ssl-keyfile"), std::string::npos) << problem();
  files_.key = folder_.write("noise.key", "noise");
  EXPECT_NE(problem().find("holds no private key"), std::string::npos) << problem();
  files_.key.clear();
  EXPECT_NE(problem().find("give it with --ssl-keyfile"), std::string::npos) << problem();
  files_ = {.key = folder_.file("key.pem")};
  EXPECT_NE(problem().find("needs --ssl-certfile"), std::string::npos) << problem();
}

TEST_F(TlsFilesTest, AKeyOfAnotherCertificateIsRefused) {
  write_key(files_.key, make_key().get());
  EXPECT_NE(problem().find("is not the key of the certificate"), std::string::npos) << problem();
}

TEST_F(TlsFilesTest, AKeyUnderAPassphraseIsRefusedWithTheCure) {
  write_key(files_.key, key_.get(), "secret");
  EXPECT_NE(problem().find("passphrase"), std::string::npos) << problem();
}

TEST_F(TlsFilesTest, CertificatesOutOfTheirTimeAreRefused) {
  write_certificate(files_.certificate, key_.get(), -7200, -3600);
  EXPECT_NE(problem().find("expired on"), std::string::npos) << problem();
  write_certificate(files_.certificate, key_.get(), 3600, 7200);
  EXPECT_NE(problem().find("not valid before"), std::string::npos) << problem();
}

TEST_F(TlsFilesTest, AskingClientsForCertificatesNeedsTheirAuthorities) {
  files_.client_certificates = ClientCertificates::kRequired;
  EXPECT_NE(problem().find("--ssl-ca-certs"), std::string::npos);
  files_.client_authorities = folder_.write("ca.pem", "noise");
  EXPECT_NE(problem().find("holds no certificates"), std::string::npos);
  files_.client_authorities = files_.certificate;
  EXPECT_EQ(problem(), "");
}

// Without TLS the server would answer every client, with a certificate or without.
TEST_F(TlsFilesTest, CheckingClientsNeedsACertificateOfTheServer) {
  const std::string authorities = files_.certificate;
  for (const ClientCertificates asked :
       {ClientCertificates::kNotAsked, ClientCertificates::kOptional,
        ClientCertificates::kRequired}) {
    files_ = {.certificate = {},
              .key = {},
              .client_authorities = authorities,
              .client_certificates = asked};
    EXPECT_TRUE(files_.wanted());
    EXPECT_NE(problem().find("--ssl-certfile and --ssl-keyfile"), std::string::npos);
  }
  files_.client_authorities.clear();
  EXPECT_TRUE(files_.wanted());
  EXPECT_FALSE(TlsFiles().wanted());
}

// A blocking client; `own_certificate` is shown when the server asks for one.
class TlsClient {
 public:
  explicit TlsClient(uint16_t port, const TlsFiles& own_certificate = {})
      : context_(SSL_CTX_new(TLS_client_method())), session_(nullptr) {
    if (own_certificate.wanted()) {
      SSL_CTX_use_certificate_chain_file(context_, own_certificate.certificate.c_str());
      SSL_CTX_use_PrivateKey_file(context_, own_certificate.key.c_str(), SSL_FILETYPE_PEM);
    }
    session_ = SSL_new(context_);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    SSL_set_fd(session_, socket_);
  }
  ~TlsClient() {
    SSL_free(session_);
    SSL_CTX_free(context_);
    ::close(socket_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool shake_hands() { return connected_ && SSL_connect(session_) == 1; }
  void use_versions_up_to(int version) { SSL_set_max_proto_version(session_, version); }
  // The certificate that the server has shown.
  [[nodiscard]] std::string servers_key() const {
    X509* certificate = SSL_get1_peer_certificate(session_);
    unsigned char* text = nullptr;
    const int bytes = i2d_PUBKEY(X509_get0_pubkey(certificate), &text);
    std::string key(reinterpret_cast<const char*>(text), static_cast<size_t>(bytes));
    OPENSSL_free(text);
    X509_free(certificate);
    return key;
  }
  [[nodiscard]] std::string version() const { return SSL_get_version(session_); }
  void send(std::string_view text) {
    size_t written = 0;
    SSL_write_ex(session_, text.data(), text.size(), &written);
  }
  // Up to and with `end`, or up to the end of the connection.
  std::string read_until(std::string_view end) {
    std::string text;
    std::array<char, 4096> buffer{};
    size_t bytes = 0;
    while (!text.ends_with(end) &&
           SSL_read_ex(session_, buffer.data(), buffer.size(), &bytes) == 1) {
      text.append(buffer.data(), bytes);
    }
    return text;
  }

 private:
  SSL_CTX* context_;
  SSL* session_;
  int socket_ = -1;
  bool connected_ = false;
};

class TlsServer : public TlsFilesTest {
 protected:
  std::unique_ptr<TestServer> serve() {
    ServerOptions options;
    options.tls = files_;
    return std::make_unique<TestServer>(std::move(options));
  }
};

TEST_F(TlsServer, AnswersOneRequestAfterAnother) {
  const auto test = serve();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(test->port());
    client.use_versions_up_to(version);
    ASSERT_TRUE(client.shake_hands());
    EXPECT_EQ(client.version(), version == TLS1_2_VERSION ? "TLSv1.2" : "TLSv1.3");
    for (int i = 0; i < 3; ++i) {
      client.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
      EXPECT_TRUE(client.read_until("}").ends_with(R"({"version":"unknown"})"));
    }
  }
}

TEST_F(TlsServer, ACertificateIsReadAgain) {
  const auto test = serve();
  TlsClient before(test->port());
  ASSERT_TRUE(before.shake_hands());
  const PrivateKey renewed = make_key();
  write_key(files_.key, renewed.get());
  const Status broken = test->server->reload_certificate();
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("is not the key of the certificate"), std::string::npos);
  TlsClient between(test->port());
  ASSERT_TRUE(between.shake_hands());
  EXPECT_EQ(between.servers_key(), before.servers_key()) << "a broken pair changes nothing";
  write_certificate(files_.certificate, renewed.get(), -3600, 7200);
  ASSERT_TRUE(test->server->reload_certificate().ok());
  EXPECT_LE(*test->server->certificate_valid_for(), std::chrono::hours(2));
  TlsClient after(test->port());
  ASSERT_TRUE(after.shake_hands());
  EXPECT_NE(after.servers_key(), before.servers_key());
  for (TlsClient* client : {&before, &between, &after}) {
    client->send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(client->read_until("}").ends_with(R"({"version":"unknown"})"));
  }
}

TEST_F(TlsServer, OldVersionsAreRefused) {
  const auto test = serve();
  TlsClient client(test->port());
  client.use_versions_up_to(TLS1_1_VERSION);
  EXPECT_FALSE(client.shake_hands());
  test->eventually([&] { return test->server->metrics().connections == 0; });
}

TEST_F(TlsServer, LargeBodiesAndAnswersPass) {
  const auto test = serve();
  test->frontend.answer_at_once(std::string(300000, 'a'));
  TlsClient client(test->port());
  ASSERT_TRUE(client.shake_hands());
  const std::string body =
      R"({"messages":[{"role":"user","content":"hi"}],"user":")" + std::string(500000, 'u') + "\"}";
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string answer = client.read_until("nothing ends like this");
  EXPECT_GT(answer.size(), 300000U);
  EXPECT_NE(answer.find(R"("completion_tokens":300000)"), std::string::npos);
}

TEST_F(TlsServer, AClientThatLeavesItsStreamCancelsIt) {
  const auto test = serve();
  {
    TlsClient client(test->port());
    ASSERT_TRUE(client.shake_hands());
    const std::string body = R"({"messages":[{"role":"user","content":"hi"}],"stream":true})";
    client.send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    test->frontend.request(0);
    test->frontend.emit_text(0, "a");
    EXPECT_NE(client.read_until("\r\n").find("200 OK"), std::string::npos);
  }
  test->frontend.wait_for_cancels(1);
  test->eventually([&] { return test->server->metrics().connections == 0; });
}

TEST_F(TlsServer, PlainTextAndSilenceAreClosed) {
  ServerOptions options;
  options.tls = files_;
  options.limits.header_timeout = std::chrono::milliseconds(20);
  TestServer test(std::move(options));
  Client plain(test.port());
  plain.get("/health");
  EXPECT_TRUE(plain.closed_by_server());
  test.eventually([&] { return test.server->metrics().tls_handshakes_failed == 1; });
  Client silent(test.port());
  EXPECT_TRUE(silent.closed_by_server());
  EXPECT_EQ(test.server->metrics().idle_closed, 1);
}

TEST_F(TlsServer, OnlyClientsWithACertificateOfTheAuthoritiesMayAsk) {
  files_.client_certificates = ClientCertificates::kRequired;
  files_.client_authorities = files_.certificate;
  const auto test = serve();
  for (const bool shown : {true, false}) {
    TlsClient client(test->port(), shown ? files_ : TlsFiles());
    client.shake_hands();  // in TLS 1.3 the client is told of its refusal only afterwards
    client.send("GET /version HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_EQ(client.read_until("}").empty(), !shown);
  }
}

}  // namespace
}  // namespace tandem::api
