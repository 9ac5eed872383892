package slipring.peers.rings;

import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;
import java.util.function.LongPredicate;
import slipring.peers.Check;
import slipring.peers.Request;
import slipring.peers.Threads;
import slipring.peers.Work;

/**
 * Timing and checks of a run of several stages or several producers. Each producer first sends one
 * event, and the clock starts when every stage has seen these. It stops when the last stage sees
 * the last event.
 */
final class Timing {
    /** Number of publications in a part of a producer's loop. */
    private static final int PART = 512;
    /** Lowest bit of the producer's number in an event; the bits below are the event's number. */
    private static final int PRODUCER_SHIFT = 56;

    private final int stages;
    private final int producers;
    /** Number of events of each producer. */
    private final long events;
    /** Steps of each producer before an event. */
    private final int steps;
    /** Steps of each stage on an event. */
    private final int handlerSteps;
    private final AtomicInteger arrived = new AtomicInteger();
    private final AtomicLong begin = new AtomicLong(Long.MAX_VALUE);
    private final AtomicLong end = new AtomicLong(Long.MIN_VALUE);
    private final AtomicInteger checked = new AtomicInteger();

    /** Times a request whose events are divided among the producers. */
    Timing(Request request, int stages, int producers) {
        events = request.number("events") / producers;
        steps = request.count("steps");
        handlerSteps = request.count("handler_steps");
        if (events < 2) {
            throw new IllegalArgumentException("the first event is not timed");
        }
        this.stages = stages;
        this.producers = producers;
    }

    /** Returns the number of events that each stage sees. */
    long all() {
        return producers * events;
    }

    /** Publishes one producer's events. Does the steps before each event but the first. */
    void produce(int producer, LongConsumer publish) {
        long mark = (long) producer << PRODUCER_SHIFT;
        publish.accept(mark | 1);
        while (arrived.get() < stages) {
            Thread.yield();
        }
        begin.accumulateAndGet(System.nanoTime(), Math::min);
        Work work = new Work();
        // In parts, so that the loop is compiled as a method that is called often.
        for (long next = 2; next <= events; next += PART) {
            produce(mark, next, Math.min(events, next + PART - 1), work, publish);
        }
        work.keep();
    }

    private void produce(long mark, long first, long last, Work work, LongConsumer publish) {
        for (long number = first; number <= last; number++) {
            work.steps(steps);
            publish.accept(mark | number);
        }
    }

    /**
     * Publishes the events of the only producer, without work, on a thread that is also a stage's.
     * {@code publish} returns false if the ring is full, and {@code handle} then handles some
     * events.
     */
    void producePolling(LongPredicate publish, Runnable handle) {
        if (!publish.test(1)) {
            throw new IllegalStateException("an empty ring takes no event");
        }
        while (arrived.get() < stages) {
            handle.run();
        }
        begin.accumulateAndGet(System.nanoTime(), Math::min);
        for (long next = 2; next <= events; next += PART) {
            producePolling(next, Math.min(events, next + PART - 1), publish, handle);
        }
    }

    private static void producePolling(
            long first, long last, LongPredicate publish, Runnable handle) {
        for (long number = first; number <= last; number++) {
            while (!publish.test(number)) {
                handle.run();
            }
        }
    }

    /** The part of one stage. The stage's thread makes it, so that no cache line is shared. */
    final class Stage {
        private final Check[] checks = new Check[producers];
        private final Work work = new Work();
        private long seen;

        Stage() {
            for (int i = 0; i < producers; i++) {
                checks[i] = new Check();
            }
        }

        /** Works on the next event and checks it. Returns whether it was the last. */
        boolean see(long event) {
            work.steps(handlerSteps);
            if (producers == 1) {
                checks[0].see(event);
            } else {
                int producer = (int) (event >>> PRODUCER_SHIFT);
                checks[producer].see(event & (1L << PRODUCER_SHIFT) - 1);
            }
            seen++;
            if (seen == producers) {
                arrived.incrementAndGet();
            }
            return seen == all() && last();
        }

        boolean isOpen() {
            return seen < all();
        }

        private boolean last() {
            end.accumulateAndGet(System.nanoTime(), Math::max);
            work.keep();
            for (Check check : checks) {
                check.finish(events);
            }
            checked.incrementAndGet();
            return true;
        }
    }

    /** Returns the answer. Fails unless every stage saw every event, in order. */
    String result() throws Exception {
        if (checked.get() != stages) {
            throw new IllegalStateException("a stage did not see all events in order");
        }
        double took = end.get() - begin.get();
        double alone =
                handlerSteps == 0 ? 0 : Threads.measure(0, () -> Work.alone(events, handlerSteps));
        return String.format(
                Locale.ROOT, "ns %.3f alone %.3f", took / (producers * (events - 1)), alone);
    }
}
