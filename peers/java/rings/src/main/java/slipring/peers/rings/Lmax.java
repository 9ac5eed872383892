package slipring.peers.rings;

import com.lmax.disruptor.BatchEventProcessor;
import com.lmax.disruptor.BatchEventProcessorBuilder;
import com.lmax.disruptor.BlockingWaitStrategy;
import com.lmax.disruptor.BusySpinWaitStrategy;
import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.EventPoller;
import com.lmax.disruptor.InsufficientCapacityException;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.Sequence;
import com.lmax.disruptor.SleepingWaitStrategy;
import com.lmax.disruptor.WaitStrategy;
import com.lmax.disruptor.YieldingWaitStrategy;
import com.lmax.disruptor.dsl.ProducerType;
import java.util.ArrayList;
import java.util.List;
import slipring.peers.Request;
import slipring.peers.Threads;

/**
 * LMAX Disruptor. The consumers are batch event processors on threads of the run.
 *
 * <p>The library's own producer parks its thread for a nanosecond while the ring is full, which
 * lasts about 50 µs on Linux. So there are contenders whose producers spin or yield instead.
 */
final class Lmax {
    private Lmax() {}

    private static RingBuffer<Event> ring(int capacity, boolean several, WaitStrategy wait) {
        ProducerType type = several ? ProducerType.MULTI : ProducerType.SINGLE;
        return RingBuffer.create(type, Event::new, capacity, wait);
    }

    private static BatchEventProcessor<Event> processor(
            RingBuffer<Event> ring, EventHandler<Event> handler, Sequence... behind) {
        return new BatchEventProcessorBuilder().build(ring, ring.newBarrier(behind), handler);
    }

    /** Makes a stream with a consumer that spins. */
    static Ends ends(int capacity, boolean several, boolean spinning) {
        RingBuffer<Event> ring = ring(capacity, several, new BusySpinWaitStrategy());
        Driven handler = new Driven();
        handler.processor = processor(ring, handler);
        ring.addGatingSequences(handler.processor.getSequence());
        return new Ends() {
            @Override
            public Publisher publisher() {
                if (spinning) {
                    return (first, count) -> {
                        long last = claim(ring, (int) count, Thread::onSpinWait);
                        publish(ring, first, count, last);
                    };
                }
                return (first, count) -> publish(ring, first, count, ring.next((int) count));
            }

            @Override
            public Receiver receiver() {
                return handler::receive;
            }
        };
    }

    private static long claim(RingBuffer<Event> ring, int count, Runnable wait) {
        while (true) {
            try {
                return ring.tryNext(count);
            } catch (InsufficientCapacityException full) {
                wait.run();
            }
        }
    }

    private static void publish(RingBuffer<Event> ring, long first, long count, long last) {
        if (count == 1) {
            ring.get(last).number = first;
            ring.publish(last);
            return;
        }
        long begin = last - count + 1;
        for (long at = begin; at <= last; at++) {
            ring.get(at).number = first++;
        }
        ring.publish(begin, last);
    }

    /** Passes events on, and ends its processor behind the last one. */
    private static final class Driven implements EventHandler<Event> {
        private Handler to;
        private BatchEventProcessor<Event> processor;

        /** Runs the processor until the handler has seen all events. */
        private void receive(Handler handler) {
            to = handler;
            processor.run();
        }

        @Override
        public void onEvent(Event event, long sequence, boolean endOfBatch) {
            to.handle(event.number);
            if (!to.isOpen()) {
                processor.halt();
            }
        }
    }

    /** Makes round trips: the other thread runs a processor, and the calling thread polls. */
    static RoundTrips.Sides roundTrip() {
        RingBuffer<Event> there = ring(1024, false, new BusySpinWaitStrategy());
        RingBuffer<Event> back = ring(1024, false, new BusySpinWaitStrategy());
        Echo echo = new Echo(back);
        echo.processor = processor(there, echo);
        there.addGatingSequences(echo.processor.getSequence());
        EventPoller<Event> answers = back.newPoller();
        back.addGatingSequences(answers.getSequence());
        return new RoundTrips.Sides() {
            private long answer;
            private final EventPoller.Handler<Event> remember =
                    (event, sequence, endOfBatch) -> {
                        answer = event.number;
                        return true;
                    };

            @Override
            public void echo(int rounds) {
                echo.left = rounds;
                echo.processor.run();
            }

            @Override
            public long round(long number) throws Exception {
                publish(there, number, 1, there.next());
                while (answers.poll(remember) != EventPoller.PollState.PROCESSING) {
                    Thread.onSpinWait();
                }
                return answer;
            }
        };
    }

    /** Answers each event with the same event. */
    private static final class Echo implements EventHandler<Event> {
        private final RingBuffer<Event> back;
        private BatchEventProcessor<Event> processor;
        private int left;

        private Echo(RingBuffer<Event> back) {
            this.back = back;
        }

        @Override
        public void onEvent(Event event, long sequence, boolean endOfBatch) {
            publish(back, event.number, 1, back.next());
            left--;
            if (left == 0) {
                processor.halt();
            }
        }
    }

    /** A wait strategy of the stages, and whether producers yield while the ring is full. */
    record Waiting(WaitStrategy stages, boolean producerYields) {
        /** Returns the way to wait that a contender's name ends with. */
        static Waiting named(Request request) {
            return switch (request.contender()) {
                case "lmax-yielding" -> new Waiting(new YieldingWaitStrategy(), false);
                case "lmax-yielding-producer" -> new Waiting(new YieldingWaitStrategy(), true);
                case "lmax-sleeping" -> new Waiting(new SleepingWaitStrategy(), false);
                case "lmax-blocking" -> new Waiting(new BlockingWaitStrategy(), false);
                default -> throw request.unknown();
            };
        }
    }

    /** Runs a shape of several threads on two cores. */
    static String shape(Request request) throws Exception {
        Waiting waiting = Waiting.named(request);
        String form = request.text("form");
        int producers = form.equals("fan-in") ? request.count("producers") : 1;
        RingBuffer<Event> ring = ring(request.count("ring"), producers > 1, waiting.stages());
        int count =
                switch (form) {
                    case "fan-in" -> 1;
                    case "pipeline" -> request.count("stages");
                    default -> 3;
                };
        Timing timing = new Timing(request, count, producers);
        List<Staged> stages = stages(form, count, ring);
        Threads threads = new Threads();
        for (Staged staged : stages) {
            threads.start(
                    () -> {
                        staged.stage = timing.new Stage();
                        staged.processor.run();
                        return null;
                    },
                    Shapes.TWO_CORES);
        }
        for (int i = 0; i < producers; i++) {
            int producer = i;
            threads.start(
                    () -> {
                        if (waiting.producerYields()) {
                            timing.produce(
                                    producer,
                                    number -> {
                                        long at = claim(ring, 1, Thread::yield);
                                        publish(ring, number, 1, at);
                                    });
                        } else {
                            timing.produce(
                                    producer, number -> publish(ring, number, 1, ring.next()));
                        }
                        return null;
                    },
                    Shapes.TWO_CORES);
        }
        threads.join();
        return timing.result();
    }

    /** Makes a row of two stages: a poller, and a batch event processor that spins. */
    static Shapes.Row row(int capacity) {
        RingBuffer<Event> ring = ring(capacity, false, new BusySpinWaitStrategy());
        EventPoller<Event> first = ring.newPoller();
        Driven second = new Driven();
        second.processor = processor(ring, second, first.getSequence());
        ring.addGatingSequences(second.processor.getSequence());
        Queue.Sender sender =
                number -> {
                    long at;
                    try {
                        at = ring.tryNext();
                    } catch (InsufficientCapacityException full) {
                        return false;
                    }
                    publish(ring, number, 1, at);
                    return true;
                };
        return new Shapes.Row(sender, new Polled(first), second::receive);
    }

    /** Receives through a poller. */
    private static final class Polled implements Queue.Receiver, EventPoller.Handler<Event> {
        private final EventPoller<Event> poller;
        private Handler to;
        private int left;

        private Polled(EventPoller<Event> poller) {
            this.poller = poller;
        }

        @Override
        public boolean onEvent(Event event, long sequence, boolean endOfBatch) {
            to.handle(event.number);
            left--;
            return left > 0;
        }

        @Override
        public boolean tryReceive(Handler handler) {
            return receiveBatch(handler, 1) != 0;
        }

        @Override
        public int receiveBatch(Handler handler, int max) {
            to = handler;
            left = max;
            try {
                poller.poll(this);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            return max - left;
        }
    }

    /** Makes the stages of a shape, and gates the ring by its last ones. */
    private static List<Staged> stages(String form, int count, RingBuffer<Event> ring) {
        List<Staged> stages = new ArrayList<>();
        List<Sequence> sequences = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Sequence[] behind =
                    switch (form) {
                        case "fan-in", "multicast" -> new Sequence[0];
                        case "pipeline" -> array(sequences.subList(Math.max(i - 1, 0), i));
                        case "diamond" -> array(sequences.subList(0, i == 2 ? 2 : 0));
                        default -> throw new IllegalArgumentException("no shape is named " + form);
                    };
            Staged staged = new Staged();
            staged.processor = processor(ring, staged, behind);
            stages.add(staged);
            sequences.add(staged.processor.getSequence());
        }
        boolean parallel = form.equals("multicast");
        List<Sequence> last = parallel ? sequences : sequences.subList(count - 1, count);
        ring.addGatingSequences(array(last));
        return stages;
    }

    private static Sequence[] array(List<Sequence> sequences) {
        return sequences.toArray(Sequence[]::new);
    }

    /** Passes events to a stage. */
    private static final class Staged implements EventHandler<Event> {
        private Timing.Stage stage;
        private BatchEventProcessor<Event> processor;

        @Override
        public void onEvent(Event event, long sequence, boolean endOfBatch) {
            if (stage.see(event.number)) {
                processor.halt();
            }
        }
    }
}
