// The work, the checks and the measurement that all contenders written in C++ share. They are the
// same as in the contenders written in Rust.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
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

// Hints to the processor that the thread spins.
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

// Does dependent multiplications, as the contenders written in Rust do.
[[gnu::always_inline]] inline void steps(uint32_t count, uint64_t& state) {
    uint64_t value = state;
    for (uint32_t i = 0; i < count; ++i) value = (value ^ (value >> 32)) * 6364136223846793005u;
    state = value;
}

// Keeps the compiler from leaving out the steps that led to a state.
[[gnu::always_inline]] inline void keep(uint64_t state) { asm volatile("" : : "r"(state)); }

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
    const std::string& text(const char* name) const {
        auto found = parameters.find(name);
        if (found == parameters.end())
            throw std::runtime_error(std::string("the request has no parameter ") + name);
        return found->second;
    }
    uint64_t number(const char* name) const { return std::stoull(text(name)); }
};

// A thread that passes its failure on.
class Thread {
   public:
    template <class F>
    Thread(std::vector<int> cores, F body)
        : thread_([this, cores = std::move(cores), body = std::move(body)]() mutable {
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

// Joins all threads. Passes on the failure of the first that failed.
inline void join_all(std::vector<std::unique_ptr<Thread>>& threads) {
    std::exception_ptr failure;
    for (auto& thread : threads) {
        try {
            thread->join();
        } catch (...) {
            if (!failure) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

// Measures work on a thread of its own. No other thread of a run exists meanwhile: a spinning
// thread would slow the work down where two cores share a processor's units.
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

// Returns an answer of percentiles of these times, as the contenders in Rust compute them.
inline std::string percentiles(std::vector<double>& times, std::initializer_list<size_t> percents) {
    std::sort(times.begin(), times.end());
    std::string text;
    for (size_t part : percents) {
        char value[80];
        std::snprintf(value, sizeof value, "p%zu %.0f ", part,
                      times[(times.size() - 1) * part / 100]);
        text += value;
    }
    return text;
}

// Measures steps without a hand-over, in nanoseconds per event.
inline double steps_alone(uint64_t events, uint32_t count) {
    uint64_t state = 1;
    const auto begin = Clock::now();
    for (uint64_t i = 0; i < events; ++i) steps(count, state);
    keep(state);
    return nanoseconds(Clock::now() - begin) / static_cast<double>(events);
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
    const double alone =
        count == 0 ? 0 : on_thread(0, [=] { return steps_alone(events, count); });
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
        keep(state);
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
        keep(state);
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
    Thread consumer({1}, [&, ring, all, count] {
        typename Q::Receiver receiver(queue);
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
    return percentiles(times, {50, 99});
}

// Events at random times, to a consumer whose handler works.
struct OpenLoop {
    // Scheduled times of the events, in nanoseconds since the schedule's begin.
    std::vector<uint64_t> due;
    // The begin of the schedule. The first scheduled event publishes it.
    std::atomic<Clock::rep> begin{0};
    // Whether the consumer has handled the event ahead of the schedule.
    std::atomic<bool> running{false};

    // Computes the times of a Poisson process, by the rule of the contenders in Rust. Fails if the
    // last time differs from the request's.
    explicit OpenLoop(const Request& request) : due(request.number("events")) {
        const uint64_t gap = request.number("gap"), until = request.number("until");
        uint64_t state = gap;
        double at = 0;
        for (uint64_t& time : due) {
            steps(1, state);
            // The high bits of a pseudorandom sequence, as a number in (0, 1].
            const double uniform =
                static_cast<double>((state >> 11) + 1) / static_cast<double>(uint64_t{1} << 53);
            at -= static_cast<double>(gap) * std::log(uniform);
            time = static_cast<uint64_t>(at);
        }
        // The last bit of a logarithm depends on the library that computes it.
        const uint64_t last = due.back();
        if (std::max(last, until) - std::min(last, until) > 1)
            throw std::runtime_error("the schedule ends at " + std::to_string(last) +
                                     " ns, not at " + std::to_string(until));
    }
    static Clock::rep now() {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(
                   Clock::now().time_since_epoch())
            .count();
    }
};

// Measures latencies from an event's scheduled time until its handler has finished. The schedule
// begins once the consumer has handled one event ahead of it.
template <class Q>
std::string open_loop(const Request& request) {
    OpenLoop loop(request);
    const uint32_t count = static_cast<uint32_t>(request.number("steps"));
    const uint64_t all = 1 + loop.due.size();
    Q queue(request.number("ring"));
    std::vector<double> measured;
    Thread consumer({1}, [&, all, count] {
        // Made on this thread, so that the threads share no cache line.
        std::vector<double> latencies;
        latencies.reserve(loop.due.size());
        typename Q::Receiver receiver(queue);
        Check check;
        uint64_t state = 1;
        while (check.seen < all) {
            auto handle = [&](uint64_t event) {
                const uint64_t scheduled = check.seen;
                check.see(event);
                steps(count, state);
                if (scheduled == 0) return loop.running.store(true, std::memory_order_release);
                const Clock::rep begin = loop.begin.load(std::memory_order_relaxed);
                const Clock::rep due = begin + static_cast<Clock::rep>(loop.due[scheduled - 1]);
                latencies.push_back(static_cast<double>(OpenLoop::now() - due));
            };
            if (receive_each(receiver, handle, all - check.seen) == 0) spin_hint();
        }
        keep(state);
        check.finish(all);
        measured = std::move(latencies);
    });
    Thread producer({0}, [&] {
        typename Q::Sender sender(queue);
        send(sender, 1);
        while (!loop.running.load(std::memory_order_acquire)) spin_hint();
        const Clock::rep begin = OpenLoop::now();
        loop.begin.store(begin, std::memory_order_relaxed);
        uint64_t number = 2;
        for (uint64_t due : loop.due) {
            while (OpenLoop::now() < begin + static_cast<Clock::rep>(due)) spin_hint();
            send(sender, number++);
        }
    });
    producer.join();
    consumer.join();
    return percentiles(measured, {50, 90, 99});
}

}  // namespace peers
