package slipring.peers.rings;

import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.BufferClaim;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.SleepingMillisIdleStrategy;
import slipring.peers.Request;

/**
 * Streams through shared memory by Aeron, whose driver and both ends are in this process.
 *
 * <p>The driver's only thread sleeps between its rounds: it is not needed for each message, and the
 * machine may have no core for it. The buffers are touched before the run.
 */
final class AeronIpc implements AutoCloseable {
    private static final String CHANNEL = "aeron:ipc";
    /** Time between two rounds of the driver, in milliseconds. */
    private static final long ROUND_MS = 1;

    /**
     * Bytes of a term buffer, of which a stream has three. In shorter ones the producer waits for a
     * round of the driver, which moves its limit on; longer ones leave the caches.
     */
    private static final int TERM = 16 << 20;

    private final MediaDriver driver;
    private final Aeron aeron;

    private AeronIpc() {
        driver =
                MediaDriver.launchEmbedded(
                        new MediaDriver.Context()
                                .threadingMode(ThreadingMode.SHARED)
                                .sharedIdleStrategy(new SleepingMillisIdleStrategy(ROUND_MS))
                                .ipcTermBufferLength(TERM)
                                .termBufferSparseFile(false)
                                .dirDeleteOnShutdown(true));
        Aeron.Context context =
                new Aeron.Context()
                        .aeronDirectoryName(driver.aeronDirectoryName())
                        .preTouchMappedMemory(true);
        aeron = Aeron.connect(context);
    }

    @Override
    public void close() {
        aeron.close();
        driver.close();
    }

    static String stream(Request request) throws Exception {
        try (AeronIpc ipc = new AeronIpc()) {
            return Streams.stream(request, Queue.ends(ipc.queue(1), true));
        }
    }

    static String roundTrip(Request request) throws Exception {
        try (AeronIpc ipc = new AeronIpc()) {
            return RoundTrips.run(request, RoundTrips.through(ipc.queue(1), ipc.queue(2)));
        }
    }

    private Queue queue(int stream) {
        Subscription subscription = aeron.addSubscription(CHANNEL, stream);
        ExclusivePublication publication = aeron.addExclusivePublication(CHANNEL, stream);
        while (!publication.isConnected() || subscription.imageCount() == 0) {
            Thread.yield();
        }
        return new Queue() {
            @Override
            public Sender sender() {
                return new Claims(publication);
            }

            @Override
            public Receiver receiver() {
                return new Fragments(subscription.imageAtIndex(0));
            }
        };
    }

    /** Sends each number as a message of eight bytes. */
    private static final class Claims implements Queue.Sender {
        private final ExclusivePublication publication;
        private final BufferClaim claim = new BufferClaim();

        private Claims(ExclusivePublication publication) {
            this.publication = publication;
        }

        @Override
        public boolean trySend(long number) {
            long position = publication.tryClaim(Long.BYTES, claim);
            if (position > 0) {
                claim.buffer().putLong(claim.offset(), number);
                claim.commit();
                return true;
            }
            if (position != Publication.BACK_PRESSURED && position != Publication.ADMIN_ACTION) {
                throw new IllegalStateException("the publication ended: " + position);
            }
            return false;
        }
    }

    private static final class Fragments implements Queue.Receiver, FragmentHandler {
        private final Image image;
        private Handler handler;

        private Fragments(Image image) {
            this.image = image;
        }

        @Override
        public void onFragment(DirectBuffer buffer, int offset, int length, Header header) {
            handler.handle(buffer.getLong(offset));
        }

        @Override
        public boolean tryReceive(Handler handler) {
            return receiveBatch(handler, 1) > 0;
        }

        @Override
        public int receiveBatch(Handler handler, int max) {
            this.handler = handler;
            return image.poll(this, max);
        }
    }
}
