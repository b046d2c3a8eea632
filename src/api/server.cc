#include "api/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <ctime>
#include <utility>
#include <vector>

#include "api/api_context.h"
#include "api/batch_routes.h"
#include "api/io_loop.h"
#include "api/routes.h"
#include "api/side_threads.h"
#include "base/date.h"
#include "base/log.h"

namespace tandem::api {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

ServerOptions with_defaults(ServerOptions options) {
  if (!options.unix_seconds) {
    options.unix_seconds = [] { return static_cast<int64_t>(std::time(nullptr)); };
  }
  if (!options.local_time) {
    options.local_time = [] {
      const std::time_t now = std::time(nullptr);
      std::tm local{};
      localtime_r(&now, &local);
      return std::chrono::local_seconds(std::chrono::seconds(now + local.tm_gmtoff));
    };
  }
  if (options.batches != nullptr) {
    constexpr uint64_t kAroundFile = 64 * 1024;  // delimiters and fields of an upload
    options.limits.http.max_streamed_bytes =
        static_cast<uint64_t>(options.batches->options().file_bytes) + kAroundFile;
  }
  return options;
}

Status check_options(const ServerOptions& options) {
  if (options.io_threads < 1 || options.io_threads > 256) {
    return invalid_argument(
        fmt::format("the number of I/O threads must be 1 to 256, not {}", options.io_threads),
        "io-threads");
  }
  if (options.side.threads < 2 || options.side.threads > 256) {
    return invalid_argument(
        fmt::format("the number of side threads must be 2 to 256, not {}", options.side.threads),
        "side-threads");
  }
  const int status = options.errors.overload_status;
  if (status < 400 || status > 599) {
    return invalid_argument(
        fmt::format("the overload status must be an HTTP error (400 to 599), not {}", status),
        "overload-status");
  }
  if (std::ranges::any_of(options.api_keys, [](const ApiKey& key) { return key.key.empty(); })) {
    return invalid_argument("an API key is empty; remove it or give one", "api-key");
  }
  return {};
}

Result<tcp::endpoint> resolve(const std::string& host, uint16_t port, asio::io_context& io) {
  error_code error;
  if (host.empty()) {
    return invalid_argument(
        "--host is empty: give 127.0.0.1 for this machine alone, or 0.0.0.0 for all its addresses",
        "host");
  }
  const asio::ip::address address = asio::ip::make_address(host, error);
  if (!error) {
    return tcp::endpoint(address, port);
  }
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return invalid_argument(
        fmt::format("cannot find the address of host '{}' ({}); give an address of this machine, "
                    "such as 127.0.0.1 or 0.0.0.0",
                    host, error.message()),
        "host");
  }
  return found.begin()->endpoint();
}

// kUnavailable: another program uses the port.
Error bind_error(const std::string& host, uint16_t port, const error_code& error) {
  std::string cure = error.message();
  if (error == asio::error::address_in_use) {
    cure = "another program uses it; stop that program or choose another port with --port";
  } else if (error == asio::error::access_denied) {
    cure = "not allowed; ports below 1024 need privileges, choose another with --port";
  } else if (error == boost::system::errc::address_not_available) {
    cure = "this machine has no such address; choose another with --host";
  }
  const bool in_use = error == asio::error::address_in_use;
  return {in_use ? ErrorCode::kUnavailable : ErrorCode::kIo,
          fmt::format("cannot listen on {} port {}: {}", host, port, cure), "port"};
}

// Port 0 is any free port.
Result<tcp::acceptor> bind_address(const std::string& host, uint16_t port, asio::io_context& io) {
  ASSIGN_OR_RETURN(const tcp::endpoint endpoint, resolve(host, port, io));
  error_code error;
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) {
    acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  }
  if (!error) {
    acceptor.bind(endpoint, error);
  }
  if (error) {
    return bind_error(host, port, error);
  }
  return acceptor;
}

Result<tcp::acceptor> listen(const ServerOptions& options, asio::io_context& io) {
  ASSIGN_OR_RETURN(tcp::acceptor acceptor, bind_address(options.host, options.port, io));
  error_code error;
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return bind_error(options.host, options.port, error);
  }
  return acceptor;
}

}  // namespace

struct Server::Impl {
  Impl(ServerOptions options, const std::vector<openai::ModelServices>& models)
      : context(with_defaults(std::move(options)), models), compute(context.options.side) {
    if (context.options.batches != nullptr) {
      disk.emplace(context.options.disk);
    }
    for (int32_t i = 0; i < context.options.io_threads; ++i) {
      loops.push_back(std::make_unique<IoLoop>(context, compute, disk ? &*disk : nullptr));
    }
    acceptor_pause = std::make_unique<asio::steady_timer>(loops.front()->io());
  }

  ~Impl() {
    asio::post(loops.front()->io(), [this] {
      error_code ignored;
      acceptor_pause->cancel();
      if (acceptor) {
        acceptor->close(ignored);
      }
    });
    // Connections post jobs to the side threads, whose ends come back to the loops: first no job
    // may follow, then the last ones end, then the loops have nothing left to take.
    for (const auto& loop : loops) {
      loop->close_connections();
    }
    compute.stop();
    if (disk) {
      disk->stop();
    }
    for (const auto& loop : loops) {
      loop->stop();
    }
    acceptor.reset();
    acceptor_pause.reset();
  }

  // Runs on the first loop.
  void accept() {
    if (!acceptor->is_open()) {
      return;  // closed while a connection or the end of a pause was on its way here
    }
    IoLoop& loop = *loops[next_loop++ % loops.size()];
    acceptor->async_accept(loop.io(), [this, &loop](const error_code& error, tcp::socket socket) {
      if (error == asio::error::operation_aborted || !acceptor->is_open()) {
        return;
      }
      if (error) {
        pause_accepting(error);
        return;
      }
      welcome(std::move(socket), loop);
      accept();
    });
  }

  // Out of descriptors or memory: those who are served go on, new ones wait in the kernel's queue.
  void pause_accepting(const error_code& error) {
    log::warn("cannot accept a connection now: {}", error.message());
    acceptor_pause->expires_after(std::chrono::milliseconds(100));
    acceptor_pause->async_wait([this](const error_code& cancelled) {
      if (!cancelled) {
        accept();
      }
    });
  }

  void welcome(tcp::socket socket, IoLoop& loop) {
    error_code unknown;
    const ClientPlaces::Place place =
        context.places.take(socket.remote_endpoint(unknown).address());
    const int64_t open = ++context.metrics.connections;
    if (place && open <= context.options.limits.max_connections) {
      loop.post_socket(std::move(socket), place);
      return;
    }
    --context.metrics.connections;
    HttpResponse response =
        place
            ? refuse({ErrorCode::kUnavailable, "too many connections; try again later", ""},
                     "connections", context)
            : refuse({ErrorCode::kUnavailable,
                      "too many connections from this address; close some, or try again later", ""},
                     "connections_of_client", context);
    if (context.encrypted) {
      return;  // a handshake costs more than the answer is worth: the socket is closed
    }
    response.headers.emplace_back("Date", http_date(context.options.unix_seconds()));
    const std::string text = response_head(response, BodyFraming::kLength, false) + response.body;
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
    socket.shutdown(tcp::socket::shutdown_send, ignored);
  }

  ApiContext context;
  SideThreads compute;
  std::optional<SideThreads> disk;  // where there is a data folder
  std::vector<std::unique_ptr<IoLoop>> loops;
  std::optional<tcp::acceptor> acceptor;
  std::unique_ptr<asio::steady_timer> acceptor_pause;
  size_t next_loop = 0;
  uint16_t bound_port = 0;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Status Server::check(const ServerOptions& options) {
  RETURN_IF_ERROR(check_options(options));
  if (options.tls.wanted()) {
    RETURN_IF_ERROR(TlsContext::load(options.tls));
  }
  asio::io_context io;
  const Result<tcp::acceptor> bound = bind_address(options.host, options.port, io);
  const bool in_use = !bound.ok() && bound.error().code == ErrorCode::kUnavailable;
  return bound.ok() || in_use ? Status() : Status(bound.error());
}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options,
                                              const std::vector<openai::ModelServices>& models) {
  RETURN_IF_ERROR(check_options(options));
  auto impl = std::make_unique<Impl>(std::move(options), models);
  if (const TlsFiles& files = impl->context.options.tls; files.wanted()) {
    ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> tls, TlsContext::load(files));
    impl->context.set_tls(std::move(tls));
  }
  ASSIGN_OR_RETURN(impl->acceptor, listen(impl->context.options, impl->loops.front()->io()));
  error_code error;
  impl->bound_port = impl->acceptor->local_endpoint(error).port();
  impl->accept();
  for (const auto& loop : impl->loops) {
    loop->start();
  }
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

uint16_t Server::port() const { return impl_->bound_port; }
const HttpMetrics& Server::metrics() const { return impl_->context.metrics; }

Nanos Server::io_thread_time() const {
  Nanos sum{0};
  for (const auto& loop : impl_->loops) {
    sum += loop->thread_time();
  }
  return sum;
}

DeliveryCost Server::take_longest_delivery() {
  DeliveryCost longest;
  for (const auto& loop : impl_->loops) {
    const DeliveryCost cost = loop->take_longest_delivery();
    longest.thread_time = std::max(longest.thread_time, cost.thread_time);
    longest.bytes_read = std::max(longest.bytes_read, cost.bytes_read);
  }
  return longest;
}

void Server::set_api_keys(const std::vector<ApiKey>& keys) { impl_->context.keys.replace(keys); }

const openai::ModelDirectory& Server::models() const { return impl_->context.models; }

std::optional<batches::OwnerTerms> Server::terms_of(std::string_view owner) const {
  const ApiKeys& keys = impl_->context.keys;
  if (!keys.required()) {
    return owner == owner_without_key() ? std::optional(batches::OwnerTerms()) : std::nullopt;
  }
  const std::optional<KeyMatch> key = keys.match_owner(owner);
  if (!key) {
    return std::nullopt;
  }
  return batches::OwnerTerms{.grant = key->grant,
                             .tenant = keys.count() > 1 ? tenant_of(*key) : std::string()};
}

Status Server::reload_certificate() {
  ASSIGN_OR_RETURN(std::shared_ptr<const TlsContext> tls,
                   TlsContext::load(impl_->context.options.tls));
  impl_->context.set_tls(std::move(tls));
  return {};
}

std::optional<std::chrono::hours> Server::certificate_valid_for() const {
  const std::shared_ptr<const TlsContext> tls = impl_->context.tls();
  return tls == nullptr ? std::nullopt : std::optional(tls->valid_for());
}

void Server::stop_accepting() { impl_->context.draining = true; }

bool Server::drained() const { return impl_->context.answering == 0; }

}  // namespace tandem::api
