package slipring.peers.rings;

import io.questdb.mp.Barrier;
import io.questdb.mp.FanOut;
import io.questdb.mp.MCSequence;
import io.questdb.mp.MPSequence;
import io.questdb.mp.RingQueue;
import io.questdb.mp.SCSequence;
import io.questdb.mp.SPSequence;
import io.questdb.mp.Sequence;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import slipring.peers.Request;
import slipring.peers.Task;
import slipring.peers.Threads;
import slipring.peers.Timing;

/** The message passing of QuestDB: a ring of events, and a sequence for each kind of thread. */
final class QuestDb implements Queue {
    private final RingQueue<Event> ring;
    private final Sequence publish;
    private final SCSequence consume = new SCSequence();

    /** Makes a ring with one consumer, and with one or with several producers. */
    QuestDb(int capacity, boolean several) {
        ring = new RingQueue<>(Event::new, capacity);
        publish = several ? new MPSequence(capacity) : new SPSequence(capacity);
        publish.then(consume).then(publish);
    }

    @Override
    public Sender sender() {
        return new Sender() {
            @Override
            public boolean trySend(long number) {
                long at = publish.next();
                if (at < 0) {
                    return false;
                }
                ring.get(at).number = number;
                publish.done(at);
                return true;
            }

            @Override
            public void sendBatch(long first, long count) {
                if (!(publish instanceof SPSequence single)) {
                    Sender.super.sendBatch(first, count);
                    return;
                }
                long end = first + count;
                while (first < end) {
                    long at = single.next();
                    if (at < 0) {
                        Thread.onSpinWait();
                        continue;
                    }
                    long limit = Math.min(single.available(), at + end - first);
                    while (at < limit) {
                        ring.get(at++).number = first++;
                    }
                    single.done(limit - 1);
                }
            }
        };
    }

    @Override
    public Receiver receiver() {
        return new Receiver() {
            @Override
            public boolean tryReceive(Handler handler) {
                // All available events, because that is how this library consumes.
                return receiveBatch(handler, Integer.MAX_VALUE) != 0;
            }

            @Override
            public int receiveBatch(Handler handler, int max) {
                long begin = consume.next();
                if (begin < 0) {
                    return 0;
                }
                long limit = Math.min(consume.available(), begin + max);
                for (long at = begin; at < limit; at++) {
                    handler.handle(ring.get(at).number);
                }
                consume.done(limit - 1);
                return (int) (limit - begin);
            }
        };
    }

    /** Runs a shape whose stages and producers yield the core while they wait. */
    static String shape(Request request) throws Exception {
        int capacity = request.count("ring");
        int steps = request.count("steps");
        RingQueue<Event> ring = new RingQueue<>(Event::new, capacity);
        List<SCSequence> stages = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            stages.add(new SCSequence());
        }
        SCSequence a = stages.get(0);
        SCSequence b = stages.get(1);
        SCSequence c = stages.get(2);
        SPSequence publish = new SPSequence(capacity);
        switch (request.text("form")) {
            case "pipeline" -> publish.then(a).then(b).then(c).then(publish);
            case "multicast" -> publish.then(FanOut.to(a).and(b).and(c)).then(publish);
            case "diamond" -> {
                Barrier both = FanOut.to(a).and(b);
                publish.then(both).then(c).then(publish);
            }
            default -> throw request.unknown();
        }
        Timing timing = new Timing(stages.size(), 1, request.number("events"));
        Threads threads = new Threads();
        for (SCSequence sequence : stages) {
            threads.start(
                    () -> {
                        Timing.Stage stage = timing.new Stage();
                        while (stage.isOpen()) {
                            if (!poll(ring, sequence, stage)) {
                                Thread.yield();
                            }
                        }
                        return null;
                    },
                    Shapes.TWO_CORES);
        }
        threads.start(
                () -> {
                    timing.produce(0, steps, number -> send(ring, publish, number));
                    return null;
                },
                Shapes.TWO_CORES);
        threads.join();
        return timing.result();
    }

    private static boolean poll(RingQueue<Event> ring, SCSequence sequence, Timing.Stage stage) {
        long at = sequence.next();
        if (at < 0) {
            return false;
        }
        long available = sequence.available();
        while (at < available) {
            stage.see(ring.get(at++).number);
        }
        sequence.done(available - 1);
        return true;
    }

    private static void send(RingQueue<Event> ring, Sequence publish, long number) {
        long at = publish.next();
        while (at < 0) {
            Thread.yield();
            at = publish.next();
        }
        ring.get(at).number = number;
        publish.done(at);
    }

    /** Runs a pool of two workers, which yield the core while they wait. */
    static String pool(Request request) throws Exception {
        int capacity = request.count("ring");
        long events = request.number("events");
        Task task = new Task(request);
        RingQueue<Event> ring = new RingQueue<>(Event::new, capacity);
        SPSequence publish = new SPSequence(capacity);
        MCSequence consume = new MCSequence(capacity);
        publish.then(consume).then(publish);
        AtomicInteger ready = new AtomicInteger();
        AtomicBoolean closed = new AtomicBoolean();
        Threads threads = new Threads();
        List<FutureTask<Task.Tally>> workers = new ArrayList<>();
        for (int worker = 0; worker < 2; worker++) {
            workers.add(
                    threads.start(
                            () -> {
                                Task.Tally tally = new Task.Tally(task);
                                ready.incrementAndGet();
                                work(ring, consume, closed, tally);
                                return tally;
                            },
                            Shapes.TWO_CORES));
        }
        FutureTask<Long> begin =
                threads.start(
                        () -> {
                            while (ready.get() < 2) {
                                Thread.yield();
                            }
                            long now = System.nanoTime();
                            for (long number = 1; number <= events; number++) {
                                send(ring, publish, number);
                            }
                            closed.set(true);
                            return now;
                        },
                        Shapes.TWO_CORES);
        threads.join();
        double took = System.nanoTime() - begin.get();
        workers.get(0).get().and(workers.get(1).get()).finish(task.alone(events));
        return String.format(Locale.ROOT, "ns %.3f", took / events);
    }

    private static void work(
            RingQueue<Event> ring, MCSequence consume, AtomicBoolean closed, Task.Tally tally) {
        while (true) {
            // Loaded before the poll, because the producer sets it after its last event.
            boolean last = closed.get();
            long at = consume.next();
            if (at >= 0) {
                long number = ring.get(at).number;
                consume.done(at);
                tally.add(number);
            } else if (at == -1) {
                if (last) {
                    return;
                }
                Thread.yield();
            }
            // Otherwise the other worker was faster, and there may be more.
        }
    }
}
