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
import slipring.peers.Request;
import slipring.peers.Threads;

/** The message passing of QuestDB: a ring of events, and a sequence for each kind of thread. */
final class QuestDb implements Queue {
    private final RingQueue<Event> ring;
    private final Sequence publish;
    private final Sequence consume;

    private QuestDb(int capacity, Sequence publish, Sequence consume) {
        ring = new RingQueue<>(Event::new, capacity);
        this.publish = publish;
        this.consume = consume;
        publish.then(consume).then(publish);
    }

    /** Makes a ring with one producer and one consumer. */
    static QuestDb single(int capacity) {
        return new QuestDb(capacity, new SPSequence(capacity), new SCSequence());
    }

    /** Makes a ring with several producers and one consumer. */
    static QuestDb multi(int capacity) {
        return new QuestDb(capacity, new MPSequence(capacity), new SCSequence());
    }

    /** Makes a ring with one producer and several consumers, each of which gets other events. */
    static QuestDb shared(int capacity) {
        return new QuestDb(capacity, new SPSequence(capacity), new MCSequence(capacity));
    }

    @Override
    public Sender sender() {
        return sender(ring, publish);
    }

    @Override
    public Receiver receiver() {
        if (consume instanceof SCSequence single) {
            return receiver(ring, single);
        }
        return handler -> receiveShared(ring, consume, handler);
    }

    private static Sender sender(RingQueue<Event> ring, Sequence publish) {
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

    private static Receiver receiver(RingQueue<Event> ring, SCSequence consume) {
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

    /** Receives an event, unless the ring has none for this consumer. */
    private static boolean receiveShared(
            RingQueue<Event> ring, Sequence consume, Handler handler) {
        long at = consume.next();
        while (at < -1) {
            // Another consumer was faster, and there may be more.
            at = consume.next();
        }
        if (at < 0) {
            return false;
        }
        long number = ring.get(at).number;
        consume.done(at);
        handler.handle(number);
        return true;
    }

    /** Runs a shape whose stages and producers yield the core while they wait. */
    static String shape(Request request) throws Exception {
        int capacity = request.count("ring");
        String form = request.text("form");
        int count = form.equals("pipeline") ? request.count("stages") : 3;
        RingQueue<Event> ring = new RingQueue<>(Event::new, capacity);
        List<SCSequence> stages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            stages.add(new SCSequence());
        }
        SPSequence publish = new SPSequence(capacity);
        switch (form) {
            case "pipeline" -> {
                Barrier last = publish;
                for (SCSequence stage : stages) {
                    last = last.then(stage);
                }
                last.then(publish);
            }
            case "multicast" -> {
                FanOut all = FanOut.to(stages.get(0)).and(stages.get(1)).and(stages.get(2));
                publish.then(all).then(publish);
            }
            case "diamond" -> {
                Barrier both = FanOut.to(stages.get(0)).and(stages.get(1));
                publish.then(both).then(stages.get(2)).then(publish);
            }
            default -> throw request.unknown();
        }
        Timing timing = new Timing(request, count, 1);
        Threads threads = new Threads();
        for (SCSequence stage : stages) {
            Receiver receiver = receiver(ring, stage);
            threads.start(
                    () -> {
                        Shapes.receive(receiver, new Shapes.Seeing(timing.new Stage()));
                        return null;
                    },
                    Shapes.TWO_CORES);
        }
        Sender sender = sender(ring, publish);
        threads.start(
                () -> {
                    timing.produce(0, number -> Shapes.send(sender, number));
                    return null;
                },
                Shapes.TWO_CORES);
        threads.join();
        return timing.result();
    }

    /** Makes a row of two stages. */
    static Shapes.Row row(int capacity) {
        RingQueue<Event> ring = new RingQueue<>(Event::new, capacity);
        SPSequence publish = new SPSequence(capacity);
        SCSequence first = new SCSequence();
        SCSequence second = new SCSequence();
        publish.then(first).then(second).then(publish);
        Receiver behind = receiver(ring, second);
        return new Shapes.Row(
                sender(ring, publish),
                receiver(ring, first),
                handler -> Queue.receiveSpinning(behind, handler));
    }
}
