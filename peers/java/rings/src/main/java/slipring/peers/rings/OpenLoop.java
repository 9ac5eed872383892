package slipring.peers.rings;

import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import slipring.peers.Check;
import slipring.peers.Request;
import slipring.peers.Threads;
import slipring.peers.Work;

/**
 * Events at random times from a producer on core 0 to a busy consumer on core 1. Latencies run from
 * an event's scheduled time until its handler has finished.
 *
 * <p>The whole schedule is played untimed at least once, ahead of the play that counts. A play
 * begins once the consumer has handled all events of the one before.
 */
final class OpenLoop {
    /** Scheduled times of the events of one play, in nanoseconds since its begin. */
    private final long[] due;
    /** Steps of the handler's work on an event. */
    private final int steps;
    /** Number of times that the schedule is played. */
    private final int plays;
    /** The begin of the current play. The play's first event publishes it. */
    private final AtomicLong begin = new AtomicLong();
    /** Whether the consumer has handled the last event of a play. The producer resets it. */
    private final AtomicBoolean played = new AtomicBoolean();

    private OpenLoop(Request request) {
        due = schedule(request);
        steps = request.count("steps");
        plays = 1 + (Streams.untimed(request) + due.length - 1) / due.length;
    }

    static String run(Request request, Ends ends) throws Exception {
        OpenLoop loop = new OpenLoop(request);
        Ends.Publisher publisher = ends.publisher();
        Ends.Receiver receiver = ends.receiver();
        Threads threads = new Threads();
        FutureTask<long[]> latencies =
                threads.start(
                        () -> {
                            Timed handler = loop.new Timed();
                            receiver.receive(handler);
                            handler.work.keep();
                            handler.check.finish(handler.all);
                            return handler.latencies;
                        },
                        1);
        threads.start(
                () -> {
                    loop.produce(publisher);
                    return null;
                },
                0);
        threads.join();
        return Percentiles.answer(latencies.get(), 50, 90, 99);
    }

    /**
     * Returns the times of a Poisson process, by the rule of the contenders in Rust. Fails if the
     * last time is not the one that the request states.
     */
    private static long[] schedule(Request request) {
        long[] due = new long[request.count("events")];
        long gap = request.number("gap");
        Work random = new Work(gap);
        double at = 0;
        for (int i = 0; i < due.length; i++) {
            random.steps(1);
            // The high bits of a pseudorandom sequence, as a number in (0, 1].
            double uniform = ((random.state() >>> 11) + 1) / (double) (1L << 53);
            at -= gap * StrictMath.log(uniform);
            due[i] = (long) at;
        }
        long last = due[due.length - 1];
        // The last bit of a logarithm depends on the library that computes it.
        if (Math.abs(last - request.number("until")) > 1) {
            throw new IllegalStateException(
                    "the schedule ends at " + last + " ns, not at " + request.number("until"));
        }
        return due;
    }

    private void produce(Ends.Publisher publisher) {
        long number = 1;
        for (int play = 0; play < plays; play++) {
            if (play > 0) {
                while (!played.get()) {
                    Thread.onSpinWait();
                }
                played.setPlain(false);
            }
            long now = System.nanoTime();
            begin.setOpaque(now);
            // In parts, so that the loop is compiled as a method that is called often.
            for (int next = 0; next < due.length; next += Streams.PART) {
                int end = Math.min(due.length, next + Streams.PART);
                part(publisher, now, next, end, number);
                number += end - next;
            }
        }
    }

    private void part(Ends.Publisher publisher, long begin, int next, int end, long number) {
        while (next < end) {
            while (System.nanoTime() - begin < due[next]) {
                Thread.onSpinWait();
            }
            publisher.publish(number++, 1);
            next++;
        }
    }

    /** Checks each event, works on it, and notes its latency, that of the last play in the end. */
    private final class Timed implements Handler {
        private final Check check = new Check();
        private final Work work = new Work();
        private final long all = (long) plays * due.length;
        private final long[] latencies = new long[due.length];
        /** Place of the next event in the schedule. */
        private int next;

        @Override
        public void handle(long number) {
            check.see(number);
            work.steps(steps);
            latencies[next] = System.nanoTime() - begin.getOpaque() - due[next];
            next++;
            if (next == due.length) {
                next = 0;
                played.set(true);
            }
        }

        @Override
        public boolean isOpen() {
            return check.seen() < all;
        }
    }
}
