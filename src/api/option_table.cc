#include "api/option_table.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/units.h"
#include "options/option_values.h"

namespace tandem::api {
namespace {

OptionVariable class_of_requests(ServiceClass& service_class) {
  return values::parsed_text(
      [&service_class](const std::string& text) -> Status {
        ASSIGN_OR_RETURN(service_class, parse_service_class(text));
        return {};
      },
      [&service_class] { return std::string(class_name(service_class)); },
      {std::string(class_name(ServiceClass::kLatencySensitive)),
       std::string(class_name(ServiceClass::kBestEffort)), "priority", "flex"});
}

OptionVariable ttft_rule(std::optional<TtftRule>& rule) {
  return values::parsed_text(
      [&rule](const std::string& text) -> Status {
        if (text.empty()) {
          rule.reset();
          return {};
        }
        ASSIGN_OR_RETURN(rule, parse_ttft_rule(text));
        return {};
      },
      [&rule] { return rule ? format_ttft_rule(*rule) : std::string(); });
}

OptionVariable tpot_target(std::optional<Nanos>& target) {
  return values::parsed_text(
      [&target](const std::string& text) -> Status {
        if (text.empty()) {
          target.reset();
          return {};
        }
        ASSIGN_OR_RETURN(target, parse_target(text));
        return {};
      },
      [&target] { return target ? exact_duration(*target) : std::string(); });
}

OptionVariable objective_list(std::vector<Objective>& objectives) {
  return {.kind = OptionKind::kList,
          .assign = [&objectives](const OptionValue& value, const OptionRange&) -> Status {
            const auto* texts = std::get_if<std::vector<std::string>>(&value);
            if (texts == nullptr) {
              return invalid_argument("the value is not a list of texts", "objective");
            }
            ASSIGN_OR_RETURN(objectives, parse_objectives(*texts));
            return {};
          },
          .get = [&objectives]() -> OptionValue {
            std::vector<std::string> texts;
            std::ranges::transform(objectives, std::back_inserter(texts), &Objective::text);
            return texts;
          }};
}

// No origins: not given (see CorsOptions).
OptionVariable origins(std::optional<std::vector<std::string>>& allowed) {
  return {.kind = OptionKind::kList,
          .assign = [&allowed](const OptionValue& value, const OptionRange&) -> Status {
            const auto* texts = std::get_if<std::vector<std::string>>(&value);
            if (texts == nullptr) {
              return invalid_argument("the value is not a list of texts");
            }
            allowed = texts->empty() ? std::nullopt : std::optional(*texts);
            return {};
          },
          .get = [&allowed]() -> OptionValue {
            return allowed ? OptionValue(*allowed) : OptionValue();
          }};
}

OptionTable service_options(ServerOptions& server) {
  constexpr const char* kGroup = "Classes and targets";
  return {{.name = "default-class",
           .group = kGroup,
           .help = "Class of requests that name none: latency_sensitive or best_effort (or, as in "
                   "service_tier, priority or flex)",
           .value = class_of_requests(server.service.service_class)},
          {.name = "ttft-slo",
           .group = kGroup,
           .help = "Target of latency-sensitive requests that bring none, time to the first token: "
                   "a duration, or a rule of the prompt such as 500ms+2ms/tok,max=8s",
           .value = ttft_rule(server.service.slo.ttft)},
          {.name = "tpot-slo",
           .group = kGroup,
           .help = "The same for the time per output token after the first, e.g. 50ms",
           .value = tpot_target(server.service.slo.tpot)},
          {.name = "objective",
           .group = kGroup,
           .help = "What a name in the header x-llm-d-inference-objective stands for, e.g. \"chat "
                   "class=latency_sensitive level=-1 tpot=50ms\"; may be repeated",
           .value = objective_list(server.objectives),
           .key = "objectives"}};
}

OptionTable http_options(ServerOptions& server) {
  constexpr const char* kGroup = "HTTP";
  return {{.name = "host",
           .group = kGroup,
           .help = "Address to listen on",
           .value = values::text(server.host)},
          {.name = "port",
           .group = kGroup,
           .help = "Port to listen on; 0 picks a free one",
           .value = values::whole(server.port)},
          {.name = "api-key",
           .group = kGroup,
           .help = "Key that clients must send as Bearer; may be repeated (others see it in the "
                   "list of processes: prefer the file or the variable)",
           .value = values::texts(server.key_sources.given),
           .secret = true},
          {.name = "api-key-file",
           .group = kGroup,
           .help = "File with more keys, one a line, each followed by its class, targets and "
                   "bounds if it has any (docs/scheduling.md); read again on SIGHUP",
           .value = values::path(server.key_sources.file)},
          {.name = "allowed-origins",
           .group = kGroup,
           .help = "CORS origins; * for all (default: all with an API key; without one the pages "
                   "of this machine)",
           .value = origins(server.cors.allowed_origins)},
          {.name = "allowed-methods",
           .group = kGroup,
           .help = "CORS methods",
           .value = values::texts(server.cors.allowed_methods)},
          {.name = "allowed-headers",
           .group = kGroup,
           .help = "CORS headers",
           .value = values::texts(server.cors.allowed_headers)},
          {.name = "allow-credentials",
           .group = kGroup,
           .help = "CORS credentials",
           .value = values::switch_on(server.cors.allow_credentials)},
          {.name = "no-ui",
           .group = kGroup,
           .help = "Do not serve the page at /",
           .value = values::switch_off(server.page)}};
}

OptionTable memory_limits(ServerLimits& limits) {
  constexpr const char* kGroup = "Limits";
  return {
      {.name = "max-connections",
       .unit = "connections",
       .group = kGroup,
       .help = "Open connections",
       .value = values::whole(limits.max_connections, values::WholeRange{1, 1 << 20})},
      {.name = "max-connections-per-client",
       .unit = "connections",
       .group = kGroup,
       .help = "Open connections of one address; 0: no bound of their own",
       .value = values::whole(limits.max_connections_per_client, values::WholeRange{0, 1 << 20})},
      {.name = "max-body-size",
       .group = kGroup,
       .help = "Largest request body",
       .value = values::bytes(limits.http.max_body_bytes)},
      {.name = "max-request-bytes",
       .group = kGroup,
       .help = "Memory for requests that are being sent, all together",
       .value = values::bytes(limits.max_request_bytes_held)},
      {.name = "max-answer-bytes",
       .group = kGroup,
       .help = "Memory for answers that wait for slow readers, all together",
       .value = values::bytes(limits.max_answer_bytes_held)}};
}

OptionTable time_limits(ServerLimits& limits) {
  constexpr const char* kGroup = "Limits";
  return {{.name = "header-timeout",
           .group = kGroup,
           .help = "Longest time for a request's headers",
           .value = values::duration(limits.header_timeout)},
          {.name = "body-timeout",
           .group = kGroup,
           .help = "Longest time for a request's body",
           .value = values::duration(limits.body_timeout)},
          {.name = "idle-timeout",
           .group = kGroup,
           .help = "Longest time between requests of a connection",
           .value = values::duration(limits.idle_timeout)},
          {.name = "write-timeout",
           .group = kGroup,
           .help = "Longest time for a client to accept written data",
           .value = values::duration(limits.write_timeout)}};
}

OptionTable tls_options(TlsFiles& tls) {
  constexpr const char* kGroup = "TLS";
  return {
      {.name = "ssl-certfile",
       .group = kGroup,
       .help = "PEM file with the server's certificate and its signers' certificates: serves https",
       .value = values::path(tls.certificate)},
      {.name = "ssl-keyfile",
       .group = kGroup,
       .help = "PEM file with its private key (default: in the certificate's file)",
       .value = values::path(tls.key)},
      {.name = "ssl-ca-certs",
       .group = kGroup,
       .help = "PEM file with the authorities that sign certificates of clients",
       .value = values::path(tls.client_authorities)},
      {.name = "ssl-cert-reqs",
       .group = kGroup,
       .help = "Certificates of clients: 0 not asked for, 1 checked where sent, 2 required",
       .value = values::numbered(tls.client_certificates, ClientCertificates::kRequired)}};
}

OptionTable operation_options(ServerOptions& server) {
  int& status = server.errors.overload_status;
  return {{.name = "overload-status",
           .group = "Operation",
           .help = "HTTP status of refused requests when full",
           .value = values::one_of(
               {429, 503, 529}, [&status](int64_t chosen) { status = static_cast<int>(chosen); },
               [&status] { return int64_t{status}; })}};
}

}  // namespace

OptionTable server_option_table(ServerOptions& options) {
  OptionTable table = service_options(options);
  for (OptionTable part :
       {http_options(options), memory_limits(options.limits), time_limits(options.limits),
        tls_options(options.tls), operation_options(options)}) {
    std::ranges::move(part, std::back_inserter(table));
  }
  return table;
}

}  // namespace tandem::api
