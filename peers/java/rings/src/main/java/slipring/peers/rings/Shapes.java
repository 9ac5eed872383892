package slipring.peers.rings;

import java.util.ArrayList;
import java.util.List;
import slipring.peers.Request;
import slipring.peers.Threads;
import slipring.peers.Timing;

/** Several producers through a queue, all threads on two cores. */
final class Shapes {
    static final int[] TWO_CORES = {0, 1};

    private Shapes() {}

    /** Runs several producers and one stage, which yield the core while they wait. */
    static String fanIn(Request request, Queue queue) throws Exception {
        int producers = request.count("producers");
        int steps = request.count("steps");
        Timing timing = new Timing(1, producers, request.number("events") / producers);
        Queue.Receiver receiver = queue.receiver();
        List<Queue.Sender> senders = new ArrayList<>();
        for (int producer = 0; producer < producers; producer++) {
            senders.add(queue.sender());
        }
        Threads threads = new Threads();
        threads.start(
                () -> {
                    Seeing handler = new Seeing(timing.new Stage());
                    while (handler.isOpen()) {
                        if (!receiver.tryReceive(handler)) {
                            Thread.yield();
                        }
                    }
                    return null;
                },
                TWO_CORES);
        for (int i = 0; i < producers; i++) {
            int producer = i;
            Queue.Sender sender = senders.get(i);
            threads.start(
                    () -> {
                        timing.produce(producer, steps, number -> send(sender, number));
                        return null;
                    },
                    TWO_CORES);
        }
        threads.join();
        return timing.result();
    }

    private static void send(Queue.Sender sender, long number) {
        while (!sender.trySend(number)) {
            Thread.yield();
        }
    }

    /** Passes events to a stage. */
    private record Seeing(Timing.Stage stage) implements Handler {
        @Override
        public void handle(long number) {
            stage.see(number);
        }

        @Override
        public boolean isOpen() {
            return stage.isOpen();
        }
    }
}
