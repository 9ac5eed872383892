// Runs each kind of work through a queue that damages one event, and prints a line for each answer.

#include <deque>
#include <iostream>
#include <mutex>

#include "shapes.hpp"

namespace {

// A queue that damages event 100.
struct Faulty {
    std::mutex mutex;
    std::deque<uint64_t> events;
    const size_t capacity;
    explicit Faulty(size_t ring, size_t = 1) : capacity(ring) {}

    struct Sender {
        Faulty& q;
        explicit Sender(Faulty& of) : q(of) {}
        bool try_send(uint64_t number) {
            std::lock_guard lock(q.mutex);
            if (q.events.size() == q.capacity) return false;
            q.events.push_back(number == 100 ? 99 : number);
            return true;
        }
        void send_batch(uint64_t first, uint64_t count) { peers::send_each(*this, first, count); }
    };
    struct Receiver {
        Faulty& q;
        explicit Receiver(Faulty& of) : q(of) {}
        bool try_receive(uint64_t& event) {
            std::lock_guard lock(q.mutex);
            if (q.events.empty()) return false;
            event = q.events.front();
            q.events.pop_front();
            return true;
        }
        template <class F>
        size_t receive_batch(F f, size_t max) {
            return peers::receive_each(*this, f, max);
        }
    };
};

std::string answer(const std::string& line) {
    const peers::Request request = peers::Request::parse(line);
    try {
        if (request.kind == "open") return peers::open_loop<Faulty>(request);
        if (request.kind == "shape") return peers::pipeline<Faulty>(request);
        return peers::pool<Faulty>(request, request.contender == "two-threads" ? 1 : 2);
    } catch (const std::exception& error) {
        return std::string("error ") + error.what();
    }
}

}  // namespace

int main() {
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(line) << std::endl;
}
