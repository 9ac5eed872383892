package slipring.peers.rings;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import slipring.peers.Request;
import slipring.peers.Task;
import slipring.peers.Threads;

/** Pools of two workers that share the events of a queue, on two cores. */
final class Pools {
    /** Number of workers. */
    private static final int WORKERS = 2;

    private final Task task;
    private final long events;
    private final Queue queue;
    /** Capacity of the queue, in events. */
    private final int capacity;
    /** Number of workers' threads that have started. */
    private final AtomicInteger ready = new AtomicInteger();
    /** Whether the producer has sent its last event. */
    private final AtomicBoolean closed = new AtomicBoolean();

    private Pools(Request request, Queue queue) {
        task = new Task(request);
        events = request.number("events");
        this.queue = queue;
        capacity = request.count("ring");
    }

    /** Runs a pool whose workers and producer yield the core while they wait. */
    static String onThreeThreads(Request request, Queue queue) throws Exception {
        return new Pools(request, queue).run(WORKERS);
    }

    /**
     * Runs a pool on two threads. The producer's thread sends until the queue is full, then does
     * the tasks of an eighth of the queue, and so on.
     */
    static String onTwoThreads(Request request, Queue queue) throws Exception {
        return new Pools(request, queue).run(WORKERS - 1);
    }

    /**
     * Runs so many workers' threads. The producer's thread works, too, if there is only one, and
     * each of the two threads has a core of its own.
     */
    private String run(int others) throws Exception {
        Threads threads = new Threads();
        List<FutureTask<Task.Tally>> tallies = new ArrayList<>();
        for (int worker = 0; worker < others; worker++) {
            Queue.Receiver receiver = queue.receiver();
            tallies.add(
                    threads.start(
                            () -> {
                                Tasks tasks = new Tasks(new Task.Tally(task));
                                ready.incrementAndGet();
                                drain(receiver, tasks);
                                return tasks.tally;
                            },
                            others < WORKERS ? new int[] {1} : Shapes.TWO_CORES));
        }
        Queue.Sender sender = queue.sender();
        Queue.Receiver own = others < WORKERS ? queue.receiver() : null;
        long[] begin = {0};
        tallies.add(
                threads.start(
                        () -> {
                            Tasks tasks = new Tasks(new Task.Tally(task));
                            while (ready.get() < others) {
                                Thread.yield();
                            }
                            begin[0] = System.nanoTime();
                            if (own == null) {
                                produce(sender);
                            } else {
                                produceAndWork(sender, own, tasks);
                            }
                            return tasks.tally;
                        },
                        others < WORKERS ? new int[] {0} : Shapes.TWO_CORES));
        threads.join();
        long took = System.nanoTime() - begin[0];
        Task.Tally all = new Task.Tally(task);
        for (FutureTask<Task.Tally> tally : tallies) {
            all = all.and(tally.get());
        }
        return task.answer(took, events, all, WORKERS);
    }

    private void produce(Queue.Sender sender) {
        for (long number = 1; number <= events; number++) {
            Shapes.send(sender, number);
        }
        closed.set(true);
    }

    private void produceAndWork(Queue.Sender sender, Queue.Receiver receiver, Tasks tasks) {
        int eighth = capacity / 8;
        for (long number = 1; number <= events; number++) {
            while (!sender.trySend(number)) {
                work(receiver, tasks, eighth);
            }
        }
        closed.set(true);
        drain(receiver, tasks);
    }

    private static void work(Queue.Receiver receiver, Tasks tasks, int max) {
        int had = 0;
        while (had < max && receiver.tryReceive(tasks)) {
            had++;
        }
    }

    /** Does tasks until the queue is closed and empty, and yields while it is empty. */
    private void drain(Queue.Receiver receiver, Tasks tasks) {
        while (true) {
            // Loaded before the queue is emptied, because it is set behind the last event.
            boolean last = closed.get();
            work(receiver, tasks, Integer.MAX_VALUE);
            if (last) {
                return;
            }
            Thread.yield();
        }
    }

    /** Does the task of each event. */
    private record Tasks(Task.Tally tally) implements Handler {
        @Override
        public void handle(long number) {
            tally.add(number);
        }

        @Override
        public boolean isOpen() {
            return true;
        }
    }
}
