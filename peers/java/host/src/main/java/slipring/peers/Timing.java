package slipring.peers;

import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.LongConsumer;

/**
 * Timing and checks of a run of several stages or several producers. Each producer first sends one
 * event, and the clock starts when every stage has seen these. It stops when the last stage sees
 * the last event.
 */
public final class Timing {
    /** Lowest bit of the producer's number in an event; the bits below are the event's number. */
    private static final int PRODUCER_SHIFT = 56;

    private final int stages;
    private final int producers;
    /** Number of events of each producer. */
    private final long events;
    private final AtomicInteger arrived = new AtomicInteger();
    private final AtomicLong begin = new AtomicLong(Long.MAX_VALUE);
    private final AtomicLong end = new AtomicLong(Long.MIN_VALUE);
    private final AtomicInteger checked = new AtomicInteger();

    public Timing(int stages, int producers, long events) {
        if (events < 2) {
            throw new IllegalArgumentException("the first event is not timed");
        }
        this.stages = stages;
        this.producers = producers;
        this.events = events;
    }

    /** Returns the number of events that each stage sees. */
    public long all() {
        return producers * events;
    }

    /** Publishes one producer's events. Does the steps before each event but the first. */
    public void produce(int producer, int steps, LongConsumer publish) {
        long mark = (long) producer << PRODUCER_SHIFT;
        publish.accept(mark | 1);
        while (arrived.get() < stages) {
            Thread.yield();
        }
        begin.accumulateAndGet(System.nanoTime(), Math::min);
        Work work = new Work();
        // In parts, so that the loop is compiled as a method that is called often.
        for (long next = 2; next <= events; next += 512) {
            produce(mark, next, Math.min(events, next + 511), steps, work, publish);
        }
    }

    private static void produce(
            long mark, long first, long last, int steps, Work work, LongConsumer publish) {
        for (long number = first; number <= last; number++) {
            work.steps(steps);
            publish.accept(mark | number);
        }
    }

    /** The part of one stage. The stage's thread makes it, so that no cache line is shared. */
    public final class Stage {
        private final Check[] checks = new Check[producers];
        private long seen;

        public Stage() {
            for (int i = 0; i < producers; i++) {
                checks[i] = new Check();
            }
        }

        /** Checks the next event. Returns whether it was the last. */
        public boolean see(long event) {
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

        public boolean isOpen() {
            return seen < all();
        }

        private boolean last() {
            end.accumulateAndGet(System.nanoTime(), Math::max);
            for (Check check : checks) {
                check.finish(events);
            }
            checked.incrementAndGet();
            return true;
        }
    }

    /** Returns the answer. Fails unless every stage saw every event, in order. */
    public String result() {
        if (checked.get() != stages) {
            throw new IllegalStateException("a stage did not see all events in order");
        }
        double took = end.get() - begin.get();
        return String.format(Locale.ROOT, "ns %.3f", took / (producers * (events - 1)));
    }
}
