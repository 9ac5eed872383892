package slipring.peers.rings;

import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;
import slipring.peers.Request;
import slipring.peers.Threads;

/** Graphs of several threads through queues, all threads on two cores. */
final class Shapes {
    static final int[] TWO_CORES = {0, 1};

    private Shapes() {}

    /** Runs several producers and one stage, which yield the core while they wait. */
    static String fanIn(Request request, Queue queue) throws Exception {
        int producers = request.count("producers");
        Timing timing = new Timing(request, 1, producers);
        Queue.Receiver receiver = queue.receiver();
        List<Queue.Sender> senders = new ArrayList<>();
        for (int producer = 0; producer < producers; producer++) {
            senders.add(queue.sender());
        }
        Threads threads = new Threads();
        threads.start(
                () -> {
                    receive(receiver, new Seeing(timing.new Stage()));
                    return null;
                },
                TWO_CORES);
        for (int i = 0; i < producers; i++) {
            produce(threads, timing, i, senders.get(i));
        }
        threads.join();
        return timing.result();
    }

    /** Runs stages in a row, with a queue before each. All threads yield while they wait. */
    static String pipeline(Request request, IntFunction<Queue> queue) throws Exception {
        int stages = request.count("stages");
        Timing timing = new Timing(request, stages, 1);
        Threads threads = new Threads();
        Queue first = queue.apply(request.count("ring"));
        Queue.Receiver receiver = first.receiver();
        for (int stage = 1; stage < stages; stage++) {
            Queue next = queue.apply(request.count("ring"));
            Queue.Receiver from = receiver;
            Queue.Sender to = next.sender();
            threads.start(
                    () -> {
                        receive(from, new Forwarding(timing.new Stage(), to));
                        return null;
                    },
                    TWO_CORES);
            receiver = next.receiver();
        }
        Queue.Receiver last = receiver;
        threads.start(
                () -> {
                    receive(last, new Seeing(timing.new Stage()));
                    return null;
                },
                TWO_CORES);
        produce(threads, timing, 0, first.sender());
        threads.join();
        return timing.result();
    }

    private static void produce(Threads threads, Timing timing, int producer, Queue.Sender sender) {
        threads.start(
                () -> {
                    timing.produce(producer, number -> send(sender, number));
                    return null;
                },
                TWO_CORES);
    }

    /**
     * The ends of two stages in a row. The first stage never blocks, so that the producer's thread
     * can run it. The second spins while it waits.
     */
    record Row(Queue.Sender sender, Queue.Receiver first, Ends.Receiver second) {}

    /**
     * Runs two stages in a row, the first on the producer's thread. That thread publishes until the
     * ring is full, then handles a part of the ring, and so on. Each thread has a core.
     */
    static String onTwoThreads(Request request, Row row) throws Exception {
        int quarter = request.count("ring") / 4;
        Timing timing = new Timing(request, 2, 1);
        Threads threads = new Threads();
        threads.start(
                () -> {
                    row.second.receive(new Seeing(timing.new Stage()));
                    return null;
                },
                1);
        threads.start(
                () -> {
                    Seeing first = new Seeing(timing.new Stage());
                    Runnable handle = () -> row.first.receiveBatch(first, quarter);
                    timing.producePolling(row.sender::trySend, handle);
                    while (first.isOpen()) {
                        handle.run();
                    }
                    return null;
                },
                0);
        threads.join();
        return timing.result();
    }

    /** Sends an event, and yields while the queue is full. */
    static void send(Queue.Sender sender, long number) {
        while (!sender.trySend(number)) {
            Thread.yield();
        }
    }

    /** Receives events until the handler has seen all, and yields while the queue is empty. */
    static void receive(Queue.Receiver receiver, Handler handler) {
        while (handler.isOpen()) {
            if (!receiver.tryReceive(handler)) {
                Thread.yield();
            }
        }
    }

    /** Passes events to a stage. */
    record Seeing(Timing.Stage stage) implements Handler {
        @Override
        public void handle(long number) {
            stage.see(number);
        }

        @Override
        public boolean isOpen() {
            return stage.isOpen();
        }
    }

    /** Passes events to a stage, then to the next queue. */
    private record Forwarding(Timing.Stage stage, Queue.Sender next) implements Handler {
        @Override
        public void handle(long number) {
            stage.see(number);
            send(next, number);
        }

        @Override
        public boolean isOpen() {
            return stage.isOpen();
        }
    }
}
