// The queues, each behind the same few functions. A queue whose header is missing is left out.
#pragma once

#include <memory>

#include "shapes.hpp"

#if __has_include(<boost/lockfree/spsc_queue.hpp>)
#define HAS_BOOST
#include <boost/lockfree/spsc_queue.hpp>
#endif
#if __has_include(<readerwriterqueue/readerwriterqueue.h>)
#define HAS_READER_WRITER
#include <readerwriterqueue/readerwriterqueue.h>
#endif
#if __has_include(<readerwriterqueue/readerwritercircularbuffer.h>)
#define HAS_CIRCULAR
#include <readerwriterqueue/readerwritercircularbuffer.h>
#endif
#if __has_include(<concurrentqueue/blockingconcurrentqueue.h>)
#define HAS_CONCURRENT
#include <concurrentqueue/blockingconcurrentqueue.h>
#endif
#if __has_include(<rigtorp/SPSCQueue.h>)
#define HAS_RIGTORP
#include <rigtorp/SPSCQueue.h>
#endif

namespace peers {

#ifdef HAS_BOOST
struct Boost {
    boost::lockfree::spsc_queue<uint64_t> queue;
    explicit Boost(size_t capacity) : queue(capacity) {}

    struct Sender {
        Boost& q;
        explicit Sender(Boost& of) : q(of) {}
        bool try_send(uint64_t number) { return q.queue.push(number); }
        void send_batch(uint64_t first, uint64_t count) {
            uint64_t numbers[BATCH];
            while (count > 0) {
                const uint64_t part = std::min(count, BATCH);
                for (uint64_t i = 0; i < part; ++i) numbers[i] = first + i;
                for (uint64_t sent = 0; sent < part;) {
                    const uint64_t had = q.queue.push(numbers + sent, part - sent);
                    sent += had;
                    if (had == 0) spin_hint();
                }
                first += part;
                count -= part;
            }
        }
        static constexpr uint64_t BATCH = 128;
    };
    struct Receiver {
        Boost& q;
        explicit Receiver(Boost& of) : q(of) {}
        bool try_receive(uint64_t& event) { return q.queue.pop(event); }
        template <class F>
        size_t receive_batch(F f, size_t) {
            return q.queue.consume_all(f);
        }
    };
};
#endif

#if defined(HAS_READER_WRITER) || defined(HAS_CIRCULAR)
// A queue of moodycamel's for one producer and one consumer. Some could grow; `try_enqueue` keeps
// them at the size that they were made with.
template <class Queue>
struct Single {
    Queue queue;
    explicit Single(size_t capacity) : queue(capacity) {}

    struct Sender {
        Single& q;
        explicit Sender(Single& of) : q(of) {}
        bool try_send(uint64_t number) { return q.queue.try_enqueue(number); }
        void send_batch(uint64_t first, uint64_t count) { send_each(*this, first, count); }
    };
    struct Receiver {
        Single& q;
        explicit Receiver(Single& of) : q(of) {}
        bool try_receive(uint64_t& event) { return q.queue.try_dequeue(event); }
        template <class F>
        size_t receive_batch(F f, size_t max) {
            return receive_each(*this, f, max);
        }
    };
};
#endif
#ifdef HAS_READER_WRITER
using ReaderWriter = Single<moodycamel::ReaderWriterQueue<uint64_t>>;
#endif
#ifdef HAS_CIRCULAR
using Circular = Single<moodycamel::BlockingReaderWriterCircularBuffer<uint64_t>>;

// The same queue through its calls that block.
struct BlockingCircular : Circular {
    using Circular::Circular;

    struct Sender : Circular::Sender {
        explicit Sender(BlockingCircular& of) : Circular::Sender(of) {}
        void wait_and_send(uint64_t number) { q.queue.wait_enqueue(number); }
    };
    struct Receiver : Circular::Receiver {
        explicit Receiver(BlockingCircular& of) : Circular::Receiver(of) {}
        uint64_t wait_and_receive() {
            uint64_t event;
            q.queue.wait_dequeue(event);
            return event;
        }
    };
};
#endif

#ifdef HAS_CONCURRENT
// Producers and consumers use tokens, as the library advises. `try_enqueue` allocates nothing, so
// the queue keeps about the size that it was made with.
template <class Queue>
struct ConcurrentBase {
    Queue queue;
    explicit ConcurrentBase(size_t capacity, size_t producers = 1)
        : queue(capacity, producers, 0) {}

    struct Sender {
        Queue& queue;
        moodycamel::ProducerToken token;
        explicit Sender(ConcurrentBase& of) : queue(of.queue), token(of.queue) {}
        bool try_send(uint64_t number) { return queue.try_enqueue(token, number); }
        void send_batch(uint64_t first, uint64_t count) {
            uint64_t numbers[BATCH];
            while (count > 0) {
                const uint64_t part = std::min(count, BATCH);
                for (uint64_t i = 0; i < part; ++i) numbers[i] = first + i;
                while (!queue.try_enqueue_bulk(token, numbers, part)) spin_hint();
                first += part;
                count -= part;
            }
        }
        static constexpr uint64_t BATCH = 128;
    };
    struct Receiver {
        Queue& queue;
        moodycamel::ConsumerToken token;
        explicit Receiver(ConcurrentBase& of) : queue(of.queue), token(of.queue) {}
        bool try_receive(uint64_t& event) { return queue.try_dequeue(token, event); }
        template <class F>
        size_t receive_batch(F f, size_t max) {
            uint64_t events[128];
            const size_t had =
                queue.try_dequeue_bulk(token, events, std::min<size_t>(max, std::size(events)));
            std::for_each(events, events + had, f);
            return had;
        }
        uint64_t wait_and_receive()
            requires requires(uint64_t event) { queue.wait_dequeue(token, event); }
        {
            uint64_t event;
            queue.wait_dequeue(token, event);
            return event;
        }
    };
};
using Concurrent = ConcurrentBase<moodycamel::ConcurrentQueue<uint64_t>>;
// Its consumer blocks. Its producers yield while it is full, because it has no call that waits.
using BlockingConcurrent = ConcurrentBase<moodycamel::BlockingConcurrentQueue<uint64_t>>;
#endif

#ifdef HAS_RIGTORP
struct Rigtorp {
    rigtorp::SPSCQueue<uint64_t> queue;
    explicit Rigtorp(size_t capacity) : queue(capacity) {}

    struct Sender {
        Rigtorp& q;
        explicit Sender(Rigtorp& of) : q(of) {}
        bool try_send(uint64_t number) { return q.queue.try_push(number); }
        void send_batch(uint64_t first, uint64_t count) { send_each(*this, first, count); }
    };
    struct Receiver {
        Rigtorp& q;
        explicit Receiver(Rigtorp& of) : q(of) {}
        bool try_receive(uint64_t& event) {
            uint64_t* front = q.queue.front();
            if (front == nullptr) return false;
            event = *front;
            q.queue.pop();
            return true;
        }
        template <class F>
        size_t receive_batch(F f, size_t max) {
            return receive_each(*this, f, max);
        }
    };
};
#endif

}  // namespace peers
