// The work, the checks and the measurement that all contenders written in C++ share. They are the
// same as those of the contenders written in Rust.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace peers {

using Clock = std::chrono::steady_clock;

inline double nanoseconds(Clock::duration time) {
    return std::chrono::duration<double, std::nano>(time).count();
}

// Tells the processor that the thread spins.
inline void spin_hint() {
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
}

// Binds the calling thread to cores. Where that is not allowed, nothing changes.
inline void pin(std::initializer_list<int> cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int core : cores) CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

// Does dependent multiplications. The empty assembly keeps the compiler from merging two of them,
// as the black box does in Rust.
[[gnu::always_inline]] inline void steps(uint32_t count, uint64_t& state) {
    for (uint32_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : : "r"(&state) : "memory");
    }
}

// Checks order and sum of a consumer's events, whose numbers are 1, 2, 3, ...
struct Check {
    uint64_t seen = 0, sum = 0, wrong = 0;

    [[gnu::always_inline]] void see(uint64_t number) {
        ++seen;
        sum += number;
        wrong += number != seen;
    }
    // Fails unless the events were exactly 1 to `events`, in order.
    void finish(uint64_t events) const {
        if (seen != events) throw std::runtime_error("events lost or doubled");
        if (wrong != 0) throw std::runtime_error("events out of order or damaged");
        if (sum != events * (events + 1) / 2) throw std::runtime_error("events damaged");
    }
};

// A kind of work, a contender and parameters.
struct Request {
    std::string kind, contender;
    std::map<std::string, std::string> parameters;

    static Request parse(const std::string& line) {
        Request request;
        std::istringstream words(line);
        words >> request.kind >> request.contender;
        for (std::string word; words >> word;) {
            auto equals = word.find('=');
            if (equals == std::string::npos) throw std::runtime_error("not a parameter: " + word);
            request.parameters[word.substr(0, equals)] = word.substr(equals + 1);
        }
        return request;
    }
    uint64_t number(const char* name) const {
        auto found = parameters.find(name);
        if (found == parameters.end())
            throw std::runtime_error(std::string("the request has no parameter ") + name);
        return std::stoull(found->second);
    }
};

// A thread that passes its failure on.
class Thread {
   public:
    template <class F>
    Thread(std::initializer_list<int> cores, F body)
        : thread_([this, cores = std::vector<int>(cores), body = std::move(body)]() mutable {
              try {
                  cores.size() == 1 ? pin({cores[0]}) : pin({cores[0], cores[1]});
                  body();
              } catch (...) {
                  failure_ = std::current_exception();
              }
          }) {}
    void join() {
        thread_.join();
        if (failure_) std::rethrow_exception(failure_);
    }

   private:
    std::exception_ptr failure_;
    std::thread thread_;
};

// Measures work on a thread of its own. No other thread of a run exists meanwhile: one that spins
// would slow the work down where two cores share a processor's units.
template <class F>
double on_thread(int core, F measure) {
    double result = 0;
    Thread thread({core}, [&] { result = measure(); });
    thread.join();
    return result;
}

// A bounded queue `Q` has
//   explicit Q(size_t capacity)
//   Q::Sender, made from a Q&: bool try_send(uint64_t); void send_batch(uint64_t first, uint64_t n)
//   Q::Receiver, made from a Q&: bool try_receive(uint64_t&);
//                                size_t receive_batch(F, size_t max), which calls F with each event

template <class Sender>
[[gnu::always_inline]] inline void send(Sender& sender, uint64_t number) {
    while (!sender.try_send(number)) spin_hint();
}

template <class Sender>
inline void send_each(Sender& sender, uint64_t first, uint64_t count) {
    for (uint64_t number = first; number < first + count; ++number) send(sender, number);
}

template <class Receiver, class F>
inline size_t receive_each(Receiver& receiver, F f, size_t max) {
    size_t had = 0;
    for (uint64_t event; had < max && receiver.try_receive(event); ++had) f(event);
    return had;
}

inline std::string answer(double ns, double alone) {
    char text[80];
    std::snprintf(text, sizeof text, "ns %.3f alone %.3f", ns, alone);
    return text;
}

// Measures a stream from a producer on core 0 to a consumer on core 1.
template <class Q>
std::string stream(const Request& request) {
    const uint64_t ring = request.number("ring"), events = request.number("events");
    const uint64_t batch = request.number("batch");
    const uint32_t count = static_cast<uint32_t>(request.number("steps"));
    const uint64_t untimed = (ring + batch - 1) / batch * batch, all = untimed + events;
    Q queue(ring);
    std::atomic<bool> ready{false};
    Clock::time_point begin, end;
    const double alone = count == 0 ? 0 : on_thread(0, [=] {
        uint64_t state = 1;
        auto from = Clock::now();
        for (uint64_t i = 0; i < events; ++i) steps(count, state);
        return nanoseconds(Clock::now() - from) / static_cast<double>(events);
    });
    Thread consumer({1}, [&, all, batch] {
        typename Q::Receiver receiver(queue);
        Check check;
        ready.store(true, std::memory_order_release);
        while (check.seen < all) {
            auto see = [&](uint64_t event) { check.see(event); };
            size_t had = batch == 1 ? receive_each(receiver, see, all - check.seen)
                                    : receiver.receive_batch(see, all - check.seen);
            if (had == 0) spin_hint();
        }
        end = Clock::now();
        check.finish(all);
    });
    Thread producer({0}, [&, count, untimed, all, batch] {
        typename Q::Sender sender(queue);
        uint64_t state = 1, next = 1;
        while (!ready.load(std::memory_order_acquire)) spin_hint();
        auto publish_to = [&](uint64_t last, uint32_t work) {
            while (next <= last) {
                steps(work, state);
                uint64_t len = std::min(batch, last - next + 1);
                batch == 1 ? send(sender, next) : sender.send_batch(next, len);
                next += len;
            }
        };
        publish_to(untimed, 0);
        begin = Clock::now();
        publish_to(all, count);
    });
    producer.join();
    consumer.join();
    return answer(nanoseconds(end - begin) / static_cast<double>(events), alone);
}

// Checks each event, works on it, and times the events behind the untimed ones.
struct Busy {
    uint64_t untimed, all;
    uint32_t count;
    Check check{};
    uint64_t state = 1;
    Clock::time_point begin = Clock::now(), end{};

    [[gnu::always_inline]] void handle(uint64_t event) {
        check.see(event);
        steps(count, state);
        if (check.seen == untimed)
            begin = Clock::now();
        else if (check.seen == all)
            end = Clock::now();
    }
    double finish() const {
        check.finish(all);
        return nanoseconds(end - begin) / static_cast<double>(all - untimed);
    }
};

// Measures a stream to a consumer whose handler works.
template <class Q>
std::string busy(const Request& request) {
    const uint64_t ring = request.number("ring"), events = request.number("events");
    const uint32_t count = static_cast<uint32_t>(request.number("steps"));
    const uint64_t all = ring + events;
    Q queue(ring);
    const double alone = on_thread(1, [=] {
        Busy single{0, events, count};
        for (uint64_t number = 1; number <= events; ++number) {
            single.handle(number);
            // The compiler must not compute the sum of the numbers at once.
            asm volatile("" : "+r"(number));
        }
        return single.finish();
    });
    double took = 0;
    Thread consumer({1}, [&, ring, all, count] {        typename Q::Receiver receiver(queue);
        Busy handler{ring, all, count};
        while (handler.check.seen < all) {
            auto handle = [&](uint64_t event) { handler.handle(event); };
            if (receive_each(receiver, handle, all - handler.check.seen) == 0) spin_hint();
        }
        took = handler.finish();
    });
    Thread producer({0}, [&, all] {
        typename Q::Sender sender(queue);
        for (uint64_t number = 1; number <= all; ++number) send(sender, number);
    });
    producer.join();
    consumer.join();
    return answer(took, alone);
}

// Measures round trips through two queues.
template <class Q>
std::string round_trip(const Request& request) {
    const uint64_t rounds = request.number("rounds");
    Q there(1024), back(1024);
    std::vector<double> times(rounds);
    auto receive = [](typename Q::Receiver& receiver) {
        uint64_t event;
        while (!receiver.try_receive(event)) spin_hint();
        return event;
    };
    Thread echo({1}, [&, rounds] {
        typename Q::Receiver questions(there);
        typename Q::Sender answers(back);
        for (uint64_t i = 0; i < rounds; ++i) send(answers, receive(questions));
    });
    Thread asking({0}, [&, rounds] {
        typename Q::Sender questions(there);
        typename Q::Receiver answers(back);
        for (uint64_t number = 1; number <= rounds; ++number) {
            auto begin = Clock::now();
            send(questions, number);
            uint64_t answer = receive(answers);
            times[number - 1] = nanoseconds(Clock::now() - begin);
            if (answer != number) throw std::runtime_error("a wrong answer");
        }
    });
    asking.join();
    echo.join();
    std::sort(times.begin(), times.end());
    char text[80];
    std::snprintf(text, sizeof text, "p50 %.0f p99 %.0f", times[(rounds - 1) * 50 / 100],
                  times[(rounds - 1) * 99 / 100]);
    return text;
}

// Measures several producers and one consumer, all on two cores. `Q::Sender` also has
// `void wait_and_send(uint64_t)` and `Q::Receiver` `uint64_t wait_and_receive()`.
//
// Each producer first sends one event, and the clock starts when the consumer has seen these.
template <class Q>
std::string fan_in(const Request& request) {
    const uint64_t producers = request.number("producers");
    const uint64_t events = request.number("events") / producers;
    const uint32_t count = static_cast<uint32_t>(request.number("steps"));
    const int shift = 56;
    Q queue(request.number("ring"), producers);
    std::atomic<bool> arrived{false};
    Clock::time_point end;
    std::vector<Clock::time_point> begins(producers);
    Thread consumer({0, 1}, [&, producers, events] {
        typename Q::Receiver receiver(queue);
        std::vector<Check> checks(producers);
        for (uint64_t seen = 1; seen <= producers * events; ++seen) {
            uint64_t event = receiver.wait_and_receive();
            checks.at(event >> shift).see(event & ((uint64_t{1} << shift) - 1));
            if (seen == producers) arrived.store(true, std::memory_order_release);
        }
        end = Clock::now();
        for (const Check& check : checks) check.finish(events);
    });
    std::vector<std::unique_ptr<Thread>> threads;
    for (uint64_t producer = 0; producer < producers; ++producer) {
        threads.push_back(std::make_unique<Thread>(
            std::initializer_list<int>{0, 1}, [&, producer, events, count] {
                typename Q::Sender sender(queue);
                const uint64_t mark = producer << shift;
                sender.wait_and_send(mark | 1);
                while (!arrived.load(std::memory_order_acquire)) std::this_thread::yield();
                begins[producer] = Clock::now();
                uint64_t state = 1;
                for (uint64_t number = 2; number <= events; ++number) {
                    steps(count, state);
                    sender.wait_and_send(mark | number);
                }
            }));
    }
    for (auto& thread : threads) thread->join();
    consumer.join();
    auto begin = *std::min_element(begins.begin(), begins.end());
    char text[80];
    std::snprintf(text, sizeof text, "ns %.3f",
                  nanoseconds(end - begin) / static_cast<double>(producers * (events - 1)));
    return text;
}

}  // namespace peers
