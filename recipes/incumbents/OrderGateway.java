// An order gateway on the LMAX Disruptor: the incumbent beside `order_gateway.rs`.

import com.lmax.disruptor.EventHandler;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.BlockingWaitStrategy;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import com.lmax.disruptor.util.DaemonThreadFactory;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;

public final class OrderGateway {
    static final int SESSIONS = 3, ORDERS = 1000;
    static final long LIMIT = 40_000;

    static final class Order {
        int session, number, quantity;
        boolean accepted;

        String line() {
            return session + "," + number + "," + quantity + "\n";
        }
    }

    /** Writes each order to a file, and flushes at the end of a batch. */
    static final class Journal implements EventHandler<Order> {
        final OutputStream file;
        long bytes;

        Journal(Path path) throws IOException {
            file = new BufferedOutputStream(Files.newOutputStream(path));
        }

        @Override
        public void onEvent(Order order, long seq, boolean endOfBatch) throws IOException {
            byte[] line = order.line().getBytes();
            file.write(line);
            bytes += line.length;
            if (endOfBatch) file.flush();
        }

        @Override
        public void onShutdown() {
            try {
                file.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    /** Sends each order to a replica, here a checksum per session. */
    static final class Replica implements EventHandler<Order> {
        final CRC32[] sessions = {new CRC32(), new CRC32(), new CRC32()};

        @Override
        public void onEvent(Order order, long seq, boolean endOfBatch) {
            sessions[order.session].update(order.line().getBytes());
        }
    }

    /** Accepts an order as long as its session stays within the limit. */
    static final class Logic implements EventHandler<Order> {
        final long[] exposure = new long[SESSIONS];

        @Override
        public void onEvent(Order order, long seq, boolean endOfBatch) {
            order.accepted = exposure[order.session] + order.quantity <= LIMIT;
            if (order.accepted) exposure[order.session] += order.quantity;
        }
    }

    /** Answers the sessions, and flushes the answers at the end of a batch. */
    static final class Output implements EventHandler<Order> {
        final List<Order> pending = new ArrayList<>();
        final int[] accepted = new int[SESSIONS], answered = new int[SESSIONS];

        @Override
        public void onEvent(Order order, long seq, boolean endOfBatch) {
            if (order.accepted) accepted[order.session]++;
            pending.add(order);
            if (!endOfBatch) return;
            for (Order answer : pending) answered[answer.session]++;
            pending.clear();
        }
    }

    public static void main(String[] args) throws Exception {
        Path path = Files.createTempFile("orders", ".csv");
        Journal journal = new Journal(path);
        Replica replica = new Replica();
        Output output = new Output();
        Disruptor<Order> disruptor = new Disruptor<>(
                Order::new, 1024, DaemonThreadFactory.INSTANCE,
                ProducerType.MULTI, new BlockingWaitStrategy());
        disruptor.handleEventsWith(journal, replica).then(new Logic()).then(output);
        RingBuffer<Order> ring = disruptor.start();
        List<Thread> sessions = new ArrayList<>();
        for (int s = 0; s < SESSIONS; s++) {
            int session = s;
            sessions.add(new Thread(() -> {
                for (int n = 0; n < ORDERS; n++) {
                    ring.publishEvent((order, seq, number) -> {
                        order.session = session;
                        order.number = number;
                        order.quantity = 1 + (number * 7 + session * 13) % 97;
                    }, n);
                }
            }));
        }
        for (Thread session : sessions) session.start();
        for (Thread session : sessions) session.join();
        disruptor.shutdown();
        for (int s = 0; s < SESSIONS; s++) {
            System.out.printf("session %d: accepted %d of %d, replica %08x%n",
                    s, output.accepted[s], output.answered[s], replica.sessions[s].getValue());
        }
        System.out.println("journal: " + journal.bytes + " bytes");
        Files.delete(path);
    }
}
