package slipring.peers.rings;

import java.nio.ByteBuffer;
import java.util.function.IntFunction;
import org.agrona.BitUtil;
import org.agrona.concurrent.ManyToManyConcurrentArrayQueue;
import org.agrona.concurrent.ManyToOneConcurrentArrayQueue;
import org.agrona.concurrent.MessageHandler;
import org.agrona.concurrent.OneToOneConcurrentArrayQueue;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.ringbuffer.ManyToOneRingBuffer;
import org.agrona.concurrent.ringbuffer.OneToOneRingBuffer;
import org.agrona.concurrent.ringbuffer.RecordDescriptor;
import org.agrona.concurrent.ringbuffer.RingBuffer;
import org.agrona.concurrent.ringbuffer.RingBufferDescriptor;
import org.jctools.queues.MessagePassingQueue;
import org.jctools.queues.MpmcArrayQueue;
import org.jctools.queues.MpscArrayQueue;
import org.jctools.queues.SpmcArrayQueue;
import org.jctools.queues.SpscArrayQueue;

/**
 * The queues of JCTools and of Agrona.
 *
 * <p>A queue of references carries events that each producer allocates before the run and uses
 * again. So no contender allocates within a run.
 */
final class Queues {
    /**
     * Number of a producer's events above the capacity of a queue with one consumer. When one is
     * used again, the consumer has received a later one and has no access to it any more.
     */
    private static final int SPARE = 2;

    private Queues() {}

    /** Returns a factory of a queue, given its capacity, or null if no queue has the name. */
    static IntFunction<Queue> named(String name) {
        return switch (name) {
            case "jctools" -> ring -> new JcTools(new SpscArrayQueue<>(ring), ring + SPARE);
            case "jctools-multi" -> ring -> new JcTools(new MpscArrayQueue<>(ring), ring + SPARE);
            case "agrona-array" ->
                    ring ->
                            new AgronaArray(
                                    new OneToOneConcurrentArrayQueue<>(ring), ring + SPARE);
            case "agrona-array-multi" ->
                    ring ->
                            new AgronaArray(
                                    new ManyToOneConcurrentArrayQueue<>(ring), ring + SPARE);
            case "agrona-buffer" -> ring -> new AgronaBuffer(new OneToOneRingBuffer(memory(ring)));
            case "agrona-buffer-multi" ->
                    ring -> new AgronaBuffer(new ManyToOneRingBuffer(memory(ring)));
            default -> null;
        };
    }

    /**
     * Returns a queue whose consumers share the events of a run, or null if no queue has the name.
     *
     * <p>No event is used twice in the run: a consumer may be suspended between the queue's call
     * and its access to the event, however many later ones the other consumer receives meanwhile.
     */
    static Queue shared(String name, int ring, int events) {
        return switch (name) {
            case "jctools-spmc" -> new JcTools(new SpmcArrayQueue<>(ring), events);
            case "jctools-mpmc" -> new JcTools(new MpmcArrayQueue<>(ring), events);
            case "agrona-array-mpmc" ->
                    new AgronaArray(new ManyToManyConcurrentArrayQueue<>(ring), events);
            default -> null;
        };
    }

    /** The events of one producer, which uses them in turn. */
    private static final class Pool {
        private final Event[] events;
        private int next;

        private Pool(int count) {
            events = new Event[count];
            for (int i = 0; i < events.length; i++) {
                events[i] = new Event();
            }
        }

        private Event peek(long number) {
            Event event = events[next];
            event.number = number;
            return event;
        }

        private void advance() {
            next = next + 1 == events.length ? 0 : next + 1;
        }
    }

    /** An array queue of JCTools, and the number of each producer's events. */
    private record JcTools(MessagePassingQueue<Event> queue, int events) implements Queue {
        @Override
        public Sender sender() {
            Pool pool = new Pool(events);
            return new Sender() {
                private long number;

                @Override
                public boolean trySend(long event) {
                    boolean sent = queue.offer(pool.peek(event));
                    if (sent) {
                        pool.advance();
                    }
                    return sent;
                }

                @Override
                public void sendBatch(long first, long count) {
                    number = first;
                    for (int left = (int) count; left > 0; ) {
                        int sent = queue.fill(this::take, left);
                        left -= sent;
                        if (sent == 0) {
                            Thread.onSpinWait();
                        }
                    }
                }

                private Event take() {
                    Event event = pool.peek(number++);
                    pool.advance();
                    return event;
                }
            };
        }

        @Override
        public Receiver receiver() {
            return new Receiver() {
                @Override
                public boolean tryReceive(Handler handler) {
                    Event event = queue.poll();
                    if (event == null) {
                        return false;
                    }
                    handler.handle(event.number);
                    return true;
                }

                @Override
                public int receiveBatch(Handler handler, int max) {
                    return queue.drain(event -> handler.handle(event.number), max);
                }
            };
        }
    }

    /** An array queue of Agrona, and the number of each producer's events. */
    private record AgronaArray(
            org.agrona.concurrent.AbstractConcurrentArrayQueue<Event> queue, int events)
            implements Queue {
        @Override
        public Sender sender() {
            Pool pool = new Pool(events);
            return event -> {
                boolean sent = queue.offer(pool.peek(event));
                if (sent) {
                    pool.advance();
                }
                return sent;
            };
        }

        @Override
        public Receiver receiver() {
            return new Receiver() {
                @Override
                public boolean tryReceive(Handler handler) {
                    Event event = queue.poll();
                    if (event == null) {
                        return false;
                    }
                    handler.handle(event.number);
                    return true;
                }

                @Override
                public int receiveBatch(Handler handler, int max) {
                    return queue.drain(event -> handler.handle(event.number), max);
                }
            };
        }
    }

    /** Returns memory outside of the heap for so many messages of eight bytes. */
    private static UnsafeBuffer memory(int ring) {
        int message = RecordDescriptor.HEADER_LENGTH + Long.BYTES;
        int record = BitUtil.align(message, RecordDescriptor.ALIGNMENT);
        int bytes = ring * record + RingBufferDescriptor.TRAILER_LENGTH;
        return new UnsafeBuffer(ByteBuffer.allocateDirect(bytes));
    }

    /** A ring buffer of Agrona, whose messages lie in memory outside of the heap. */
    private record AgronaBuffer(RingBuffer ring) implements Queue {
        private static final int TYPE = 1;

        @Override
        public Sender sender() {
            UnsafeBuffer memory = new UnsafeBuffer(ring.buffer());
            return number -> {
                int index = ring.tryClaim(TYPE, Long.BYTES);
                if (index < 0) {
                    return false;
                }
                memory.putLong(index, number);
                ring.commit(index);
                return true;
            };
        }

        @Override
        public Receiver receiver() {
            return new Receiver() {
                private Handler handler;
                private final MessageHandler read =
                        (type, buffer, index, length) -> handler.handle(buffer.getLong(index));

                @Override
                public boolean tryReceive(Handler to) {
                    handler = to;
                    return ring.read(read, 1) == 1;
                }

                @Override
                public int receiveBatch(Handler to, int max) {
                    handler = to;
                    return ring.read(read, max);
                }
            };
        }
    }
}
