// How many connections each client address has open, and a limit on them. Threads: any. A Place is
// given back with its last copy; places may outlive the ClientPlaces they are of.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace tandem::api {

class ClientPlaces {
 public:
  using Place = std::shared_ptr<const void>;

  explicit ClientPlaces(int32_t limit) : limit_(limit), counts_(std::make_shared<Counts>()) {}

  // nullptr when the address has as many places as it may. Limit 0: always a place, nothing is
  // counted.
  [[nodiscard]] Place take(const boost::asio::ip::address& address) {
    if (limit_ == 0) {
      return Place(std::shared_ptr<void>(), this);  // owns nothing
    }
    const std::scoped_lock lock(counts_->mutex);
    int32_t& open = counts_->by_address[address];
    if (open >= limit_) {
      return nullptr;
    }
    ++open;
    return Place(static_cast<const void*>(this), [counts = counts_, address](const void*) {
      const std::scoped_lock own_lock(counts->mutex);
      const auto found = counts->by_address.find(address);
      if (--found->second == 0) {
        counts->by_address.erase(found);
      }
    });
  }

 private:
  struct Counts {
    std::mutex mutex;
    std::unordered_map<boost::asio::ip::address, int32_t> by_address;  // guarded by mutex
  };
  const int32_t limit_;
  const std::shared_ptr<Counts> counts_;
};

}  // namespace tandem::api
