// Graphs of several threads, all threads on two cores.
//
// `Q` is as in frame.hpp. Its sender may also have `void wait_and_send(uint64_t)`, and its receiver
// `uint64_t wait_and_receive()`; the ends of other queues yield the core while they wait.
#pragma once

#include <mutex>

#include "frame.hpp"

namespace peers {

template <class Sender>
[[gnu::always_inline]] inline void wait_and_send(Sender& sender, uint64_t number) {
    if constexpr (requires { sender.wait_and_send(number); }) {
        sender.wait_and_send(number);
    } else {
        while (!sender.try_send(number)) std::this_thread::yield();
    }
}

template <class Receiver>
[[gnu::always_inline]] inline uint64_t wait_and_receive(Receiver& receiver) {
    if constexpr (requires { receiver.wait_and_receive(); }) {
        return receiver.wait_and_receive();
    } else {
        uint64_t event;
        while (!receiver.try_receive(event)) std::this_thread::yield();
        return event;
    }
}

// Timing and checks of a run of several stages or several producers. Each producer first sends one
// event, and the clock starts when every stage has seen these. It stops when the last stage sees
// the last event.
class Timing {
   public:
    Timing(const Request& request, uint64_t stages, uint64_t producers)
        : stages_(stages),
          producers_(producers),
          events_(request.number("events") / producers),
          steps_(static_cast<uint32_t>(request.number("steps"))),
          handler_steps_(static_cast<uint32_t>(request.number("handler_steps"))) {
        if (events_ < 2) throw std::runtime_error("the first event is not timed");
    }

    // Returns the number of events that each stage sees.
    uint64_t all() const { return producers_ * events_; }

    // Publishes one producer's events. Does the steps before each event but the first.
    template <class F>
    void produce(uint64_t producer, F publish) {
        const uint64_t mark = producer << SHIFT, events = events_;
        const uint32_t count = steps_;
        publish(mark | 1);
        while (arrived_.load(std::memory_order_acquire) < stages_) std::this_thread::yield();
        begun(Clock::now());
        uint64_t state = 1;
        for (uint64_t number = 2; number <= events; ++number) {
            steps(count, state);
            publish(mark | number);
        }
        keep(state);
    }

    // The part of one stage. The stage's thread makes it, so that no cache line is shared.
    class Stage {
       public:
        explicit Stage(Timing& timing)
            : timing_(timing),
              producers_(timing.producers_),
              all_(timing.all()),
              handler_steps_(timing.handler_steps_),
              checks_(producers_) {}

        // Works on the next event and checks it.
        [[gnu::always_inline]] void see(uint64_t event) {
            steps(handler_steps_, state_);
            if (producers_ == 1)
                checks_[0].see(event);
            else
                checks_.at(event >> SHIFT).see(event & ((uint64_t{1} << SHIFT) - 1));
            ++seen_;
            if (seen_ == producers_) timing_.arrived_.fetch_add(1, std::memory_order_release);
            if (seen_ == all_) timing_.ended(Clock::now());
        }
        // Fails unless the stage saw every event, in order.
        void finish() const {
            keep(state_);
            for (const Check& check : checks_) check.finish(timing_.events_);
        }

       private:
        Timing& timing_;
        const uint64_t producers_, all_;
        const uint32_t handler_steps_;
        std::vector<Check> checks_;
        uint64_t seen_ = 0, state_ = 1;
    };

    // Returns the answer. All threads have ended, and all stages have finished.
    std::string result() const {
        const uint64_t events = events_;
        const uint32_t count = handler_steps_;
        const double alone =
            count == 0 ? 0 : on_thread(0, [=] { return steps_alone(events, count); });
        return answer(nanoseconds(end_ - begin_) / static_cast<double>(producers_ * (events_ - 1)),
                      alone);
    }

   private:
    // Lowest bit of the producer's number in an event; the bits below are the event's number.
    static constexpr int SHIFT = 56;

    void begun(Clock::time_point now) {
        std::lock_guard lock(mutex_);
        begin_ = std::min(begin_, now);
    }
    void ended(Clock::time_point now) {
        std::lock_guard lock(mutex_);
        end_ = std::max(end_, now);
    }

    const uint64_t stages_, producers_;
    // Number of events of each producer.
    const uint64_t events_;
    // Steps of each producer before an event, and of each stage on an event.
    const uint32_t steps_, handler_steps_;
    std::atomic<uint64_t> arrived_{0};
    std::mutex mutex_;
    Clock::time_point begin_ = Clock::time_point::max(), end_ = Clock::time_point::min();
};

// Measures several producers and one consumer.
template <class Q>
std::string fan_in(const Request& request) {
    const uint64_t producers = request.number("producers");
    Q queue(request.number("ring"), producers);
    Timing timing(request, 1, producers);
    std::vector<std::unique_ptr<Thread>> threads;
    threads.push_back(std::make_unique<Thread>(std::initializer_list<int>{0, 1}, [&] {
        typename Q::Receiver receiver(queue);
        Timing::Stage stage(timing);
        const uint64_t all = timing.all();
        for (uint64_t seen = 0; seen < all; ++seen) stage.see(wait_and_receive(receiver));
        stage.finish();
    }));
    for (uint64_t producer = 0; producer < producers; ++producer) {
        threads.push_back(std::make_unique<Thread>(
            std::initializer_list<int>{0, 1}, [&, producer] {
                typename Q::Sender sender(queue);
                timing.produce(producer, [&](uint64_t event) { wait_and_send(sender, event); });
            }));
    }
    join_all(threads);
    return timing.result();
}

// Measures stages in a row, with a queue before each.
template <class Q>
std::string pipeline(const Request& request) {
    const uint64_t stages = request.number("stages");
    std::vector<std::unique_ptr<Q>> queues;
    for (uint64_t stage = 0; stage < stages; ++stage)
        queues.push_back(std::make_unique<Q>(request.number("ring")));
    Timing timing(request, stages, 1);
    std::vector<std::unique_ptr<Thread>> threads;
    for (uint64_t number = 0; number < stages; ++number) {
        threads.push_back(std::make_unique<Thread>(
            std::initializer_list<int>{0, 1}, [&, number] {
                typename Q::Receiver receiver(*queues[number]);
                Timing::Stage stage(timing);
                const uint64_t all = timing.all();
                if (number + 1 == stages) {
                    for (uint64_t i = 0; i < all; ++i) stage.see(wait_and_receive(receiver));
                } else {
                    typename Q::Sender next(*queues[number + 1]);
                    for (uint64_t i = 0; i < all; ++i) {
                        const uint64_t event = wait_and_receive(receiver);
                        stage.see(event);
                        wait_and_send(next, event);
                    }
                }
                // Behind the last event, so that a failure leaves no later stage waiting.
                stage.finish();
            }));
    }
    threads.push_back(std::make_unique<Thread>(std::initializer_list<int>{0, 1}, [&] {
        typename Q::Sender sender(*queues[0]);
        timing.produce(0, [&](uint64_t event) { wait_and_send(sender, event); });
    }));
    join_all(threads);
    return timing.result();
}

// The tasks of a pool: no work, or steps of work.
class Task {
   public:
    explicit Task(const Request& request)
        : skewed_(request.text("task") == "skewed"),
          steps_(static_cast<uint32_t>(request.number("steps"))) {
        const std::string& name = request.text("task");
        if (name != "empty" && name != "steps" && !skewed_)
            throw std::runtime_error("no task is named " + name);
    }

    // The number of finished tasks, and the sum of their results.
    struct Tally {
        uint64_t count = 0, sum = 0;

        // Does the task of an event.
        [[gnu::always_inline]] void add(const Task& task, uint64_t number) {
            const bool large = task.skewed_ && number % 100 == 0;
            uint64_t state = number;
            steps(large ? task.steps_ * 100 : task.steps_, state);
            ++count;
            sum += state;
        }
        void add(const Tally& other) {
            count += other.count;
            sum += other.sum;
        }
    };

    // Returns the answer of a pool whose workers did all tasks in so many nanoseconds. Fails unless
    // their tally is that of one thread, whose time is measured here. One worker's share of that
    // time is the answer's `alone`.
    std::string answer_of(double took, uint64_t events, const Tally& tally, int workers) const {
        Tally right;
        const auto begin = Clock::now();
        for (uint64_t number = 1; number <= events; ++number) {
            right.add(*this, number);
            // The compiler must not compute the sum of the numbers at once.
            asm volatile("" : "+r"(number));
        }
        const double alone = nanoseconds(Clock::now() - begin);
        if (tally.count != right.count || tally.sum != right.sum)
            throw std::runtime_error("tasks lost, doubled or damaged");
        const double all = static_cast<double>(events);
        return answer(took / all, alone / all / workers);
    }

   private:
    const bool skewed_;
    const uint32_t steps_;
};

// Measures two workers that share the events of a queue. A number of 0 ends a worker's thread.
//
// `others` is the number of workers' threads. The producer's thread works, too, if there is only
// one: it sends until the queue is full, then does the tasks of an eighth of the queue, and so on.
// Each of two threads has a core of its own.
template <class Q>
std::string pool(const Request& request, int others) {
    constexpr int WORKERS = 2;
    const uint64_t ring = request.number("ring"), events = request.number("events");
    const Task task(request);
    Q queue(ring);
    std::atomic<int> ready{0};
    std::vector<Task::Tally> tallies(WORKERS);
    std::vector<std::unique_ptr<Thread>> threads;
    const auto cores = [others](int core) {
        return others == WORKERS ? std::vector<int>{0, 1} : std::vector<int>{core};
    };
    for (int worker = 0; worker < others; ++worker) {
        threads.push_back(std::make_unique<Thread>(
            cores(1), [&, worker, task] {
                typename Q::Receiver receiver(queue);
                ready.fetch_add(1, std::memory_order_release);
                Task::Tally tally;
                while (const uint64_t number = wait_and_receive(receiver)) tally.add(task, number);
                tallies[worker] = tally;
            }));
    }
    Clock::time_point begin;
    threads.push_back(
        std::make_unique<Thread>(cores(0), [&, events, task] {
            typename Q::Sender sender(queue);
            while (ready.load(std::memory_order_acquire) < others) std::this_thread::yield();
            begin = Clock::now();
            if (others == WORKERS) {
                for (uint64_t number = 1; number <= events; ++number)
                    wait_and_send(sender, number);
            } else {
                typename Q::Receiver receiver(queue);
                Task::Tally tally;
                auto work = [&](uint64_t number) { tally.add(task, number); };
                for (uint64_t number = 1; number <= events; ++number)
                    while (!sender.try_send(number)) receive_each(receiver, work, ring / 8);
                while (receive_each(receiver, work, ring) != 0) {
                }
                tallies[others] = tally;
            }
            for (int worker = 0; worker < others; ++worker) wait_and_send(sender, 0);
        }));
    join_all(threads);
    const double took = nanoseconds(Clock::now() - begin);
    for (int worker = 1; worker < WORKERS; ++worker) tallies[0].add(tallies[worker]);
    return task.answer_of(took, events, tallies[0], WORKERS);
}

}  // namespace peers
