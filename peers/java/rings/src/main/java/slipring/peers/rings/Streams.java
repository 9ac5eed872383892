package slipring.peers.rings;

import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import slipring.peers.Check;
import slipring.peers.Request;
import slipring.peers.Threads;
import slipring.peers.Work;

/** Streams from a producer on core 0 to a consumer on core 1. */
final class Streams {
    /** Least number of untimed events: the loops of both sides reach compiled code within them. */
    private static final int UNTIMED = 10_000;
    /** Number of publications in a part of the producer's loop. */
    static final int PART = 512;

    private Streams() {}

    /** Returns the number of untimed events: a lap of the ring at least, in whole batches. */
    private static long untimed(Request request, long batch) {
        long least = Math.max(request.number("ring"), untimed(request));
        return (least + batch - 1) / batch * batch;
    }

    /** Returns the least number of untimed events. */
    static int untimed(Request request) {
        // Without untimed runs there is no compiled code to reach.
        return request.number("warm") == 0 ? 1 : UNTIMED;
    }

    private static String answer(double took, double alone) {
        return String.format(Locale.ROOT, "ns %.3f alone %.3f", took, alone);
    }

    /** Measures a stream to a consumer that only checks its events. */
    static String stream(Request request, Ends ends) throws Exception {
        long batch = request.number("batch");
        long events = request.number("events");
        int steps = request.count("steps");
        long untimed = untimed(request, batch);
        long all = untimed + events;
        double alone = steps == 0 ? 0 : Threads.measure(0, () -> Work.alone(events, steps));
        Ends.Publisher publisher = ends.publisher();
        Ends.Receiver receiver = ends.receiver();
        AtomicBoolean ready = new AtomicBoolean();
        Threads threads = new Threads();
        FutureTask<Long> end =
                threads.start(
                        () -> {
                            Checking handler = new Checking(all);
                            ready.set(true);
                            receiver.receive(handler);
                            long now = System.nanoTime();
                            handler.check.finish(all);
                            return now;
                        },
                        1);
        FutureTask<Long> begin =
                threads.start(
                        () -> {
                            Work work = new Work();
                            while (!ready.get()) {
                                Thread.onSpinWait();
                            }
                            publish(publisher, 1, untimed, batch, 0, work);
                            long now = System.nanoTime();
                            publish(publisher, untimed + 1, all, batch, steps, work);
                            work.keep();
                            return now;
                        },
                        0);
        threads.join();
        return answer((end.get() - begin.get()) / (double) events, alone);
    }

    /** Publishes the events from {@code next} to {@code last}, with work before each batch. */
    private static void publish(
            Ends.Publisher publisher, long next, long last, long batch, int steps, Work work) {
        // In parts, so that the loop is compiled as a method that is called often.
        while (next <= last) {
            long end = Math.min(last, next + PART * batch - 1);
            part(publisher, next, end, batch, steps, work);
            next = end + 1;
        }
    }

    private static void part(
            Ends.Publisher publisher, long next, long last, long batch, int steps, Work work) {
        while (next <= last) {
            work.steps(steps);
            long count = Math.min(batch, last - next + 1);
            publisher.publish(next, count);
            next += count;
        }
    }

    /** Measures a stream to a consumer whose handler works. */
    static String busy(Request request, Ends ends) throws Exception {
        long events = request.number("events");
        int steps = request.count("steps");
        long untimed = untimed(request, 1);
        long all = untimed + events;
        double alone = Threads.measure(1, () -> handlerAlone(events, steps));
        Ends.Publisher publisher = ends.publisher();
        Ends.Receiver receiver = ends.receiver();
        Threads threads = new Threads();
        FutureTask<Double> took =
                threads.start(
                        () -> {
                            Busy handler = new Busy(untimed, all, steps);
                            receiver.receive(handler);
                            return handler.finish();
                        },
                        1);
        threads.start(
                () -> {
                    publish(publisher, 1, all, 1, 0, new Work());
                    return null;
                },
                0);
        threads.join();
        return answer(took.get(), alone);
    }

    /** Measures the handler's work without a hand-over, in nanoseconds per event. */
    private static double handlerAlone(long events, int steps) {
        Busy single = new Busy(0, events, steps);
        for (long number = 1; number <= events; number += PART) {
            alonePart(single, number, Math.min(events, number + PART - 1));
        }
        return single.finish();
    }

    private static void alonePart(Busy single, long first, long last) {
        for (long number = first; number <= last; number++) {
            single.handle(number);
        }
    }

    /** Checks events. */
    private static final class Checking implements Handler {
        private final Check check = new Check();
        private final long all;

        private Checking(long all) {
            this.all = all;
        }

        @Override
        public void handle(long number) {
            check.see(number);
        }

        @Override
        public boolean isOpen() {
            return check.seen() < all;
        }
    }

    /** Checks each event, works on it, and times the events behind the untimed ones. */
    private static final class Busy implements Handler {
        private final Check check = new Check();
        private final Work work = new Work();
        private final long untimed;
        private final long all;
        private final int steps;
        private long begin = System.nanoTime();
        private long end;

        private Busy(long untimed, long all, int steps) {
            this.untimed = untimed;
            this.all = all;
            this.steps = steps;
        }

        @Override
        public void handle(long number) {
            check.see(number);
            work.steps(steps);
            long seen = check.seen();
            if (seen == untimed) {
                begin = System.nanoTime();
            } else if (seen == all) {
                end = System.nanoTime();
            }
        }

        @Override
        public boolean isOpen() {
            return check.seen() < all;
        }

        /** Returns the nanoseconds per timed event. */
        private double finish() {
            work.keep();
            check.finish(all);
            return (end - begin) / (double) (all - untimed);
        }
    }
}
