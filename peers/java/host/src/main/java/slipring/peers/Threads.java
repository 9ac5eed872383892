package slipring.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;

/** The threads of one run. */
public final class Threads {
    private final List<FutureTask<?>> tasks = new ArrayList<>();

    /** Starts a thread that is bound to these cores. */
    public <T> FutureTask<T> start(Callable<T> body, int... cores) {
        FutureTask<T> task =
                new FutureTask<>(
                        () -> {
                            Cores.pin(cores);
                            return body.call();
                        });
        tasks.add(task);
        Thread thread = new Thread(task);
        // A run that hangs does not keep the program from ending.
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    /**
     * Measures work on a thread of its own. No other thread of a run exists meanwhile: one that
     * spins would slow the work down where two cores share a processor's units.
     */
    public static double measure(int core, Callable<Double> measure) throws Exception {
        Threads threads = new Threads();
        FutureTask<Double> result = threads.start(measure, core);
        threads.join();
        return result.get();
    }

    /** Waits until all threads have ended, and fails if one has failed. */
    public void join() throws Exception {
        for (FutureTask<?> task : tasks) {
            task.get();
        }
    }
}
