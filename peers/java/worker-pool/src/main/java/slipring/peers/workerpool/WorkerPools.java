package slipring.peers.workerpool;

import com.lmax.disruptor.BlockingWaitStrategy;
import com.lmax.disruptor.FatalExceptionHandler;
import com.lmax.disruptor.InsufficientCapacityException;
import com.lmax.disruptor.LifecycleAware;
import com.lmax.disruptor.RingBuffer;
import com.lmax.disruptor.SleepingWaitStrategy;
import com.lmax.disruptor.WaitStrategy;
import com.lmax.disruptor.WorkHandler;
import com.lmax.disruptor.WorkerPool;
import com.lmax.disruptor.YieldingWaitStrategy;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import slipring.peers.Contender;
import slipring.peers.Request;
import slipring.peers.Task;
import slipring.peers.Threads;

/**
 * The worker pool of LMAX Disruptor 3: a producer and two workers, three threads on two cores.
 *
 * <p>The library's own producer parks its thread while the ring is full. So there is a contender
 * whose producer yields instead.
 */
public final class WorkerPools implements Contender.Factory {
    private static final int WORKERS = 2;
    private static final int[] TWO_CORES = {0, 1};

    @Override
    public Contender make(Request request) {
        if (!request.kind().equals("pool")) {
            throw request.unknown();
        }
        return WorkerPools::run;
    }

    private static WaitStrategy wait(Request request) {
        return switch (request.contender()) {
            case "lmax3-yielding", "lmax3-yielding-producer" -> new YieldingWaitStrategy();
            case "lmax3-sleeping" -> new SleepingWaitStrategy();
            case "lmax3-blocking" -> new BlockingWaitStrategy();
            default -> throw request.unknown();
        };
    }

    private static String run(Request request) throws Exception {
        long events = request.number("events");
        Task task = new Task(request);
        boolean yields = request.contender().endsWith("-producer");
        RingBuffer<Event> ring =
                RingBuffer.createSingleProducer(Event::new, request.count("ring"), wait(request));
        CountDownLatch ready = new CountDownLatch(WORKERS);
        Worker[] workers = {new Worker(task, ready), new Worker(task, ready)};
        WorkerPool<Event> pool =
                new WorkerPool<>(ring, ring.newBarrier(), new FatalExceptionHandler(), workers);
        ring.addGatingSequences(pool.getWorkerSequences());
        Threads threads = new Threads();
        FutureTask<Long> begin =
                threads.start(
                        () -> {
                            pool.start(
                                    worker ->
                                            threads.start(
                                                    () -> {
                                                        worker.run();
                                                        return null;
                                                    },
                                                    TWO_CORES));
                            ready.await();
                            long now = System.nanoTime();
                            for (long number = 1; number <= events; number++) {
                                long at = yields ? claim(ring) : ring.next();
                                ring.get(at).number = number;
                                ring.publish(at);
                            }
                            pool.drainAndHalt();
                            return now;
                        },
                        TWO_CORES);
        begin.get();
        threads.join();
        long took = System.nanoTime() - begin.get();
        return task.answer(took, events, workers[0].tally.and(workers[1].tally), WORKERS);
    }

    /** Claims an event, and yields the core while the ring is full. */
    private static long claim(RingBuffer<Event> ring) {
        while (true) {
            try {
                return ring.tryNext();
            } catch (InsufficientCapacityException full) {
                Thread.yield();
            }
        }
    }

    /** An event of the ring. */
    public static final class Event {
        private long number;
    }

    /** Does the tasks of the events that the pool gives to one worker. */
    private static final class Worker implements WorkHandler<Event>, LifecycleAware {
        private final Task task;
        private final CountDownLatch ready;
        private Task.Tally tally;

        private Worker(Task task, CountDownLatch ready) {
            this.task = task;
            this.ready = ready;
        }

        @Override
        public void onStart() {
            // Made on the worker's thread, so that the tallies of two workers share no cache line.
            tally = new Task.Tally(task);
            ready.countDown();
        }

        @Override
        public void onEvent(Event event) {
            tally.add(event.number);
        }

        @Override
        public void onShutdown() {}
    }
}
