package slipring.peers;

import java.util.Locale;

/** The tasks of a pool: no work, or steps of work. */
public final class Task {
    /** Number of tasks in a part of a loop: a method that is called often is compiled. */
    private static final int PART = 512;

    private final boolean empty;
    private final boolean skewed;
    private final int steps;

    /** Makes the task that a request names. */
    public Task(Request request) {
        String name = request.text("task");
        empty = name.equals("empty");
        skewed = name.equals("skewed");
        if (!empty && !skewed && !name.equals("steps")) {
            throw new IllegalArgumentException("no task is named " + name);
        }
        steps = request.count("steps");
    }

    /**
     * Returns the answer of a pool whose workers did all tasks in so many nanoseconds. Fails unless
     * their tally is that of one thread, whose time is measured here. One worker's share of that
     * time is the answer's {@code alone}.
     */
    public String answer(long took, long events, Tally tally, int workers) {
        Tally right = new Tally(this);
        long begin = System.nanoTime();
        for (long number = 1; number <= events; number += PART) {
            right.addAll(number, Math.min(events, number + PART - 1));
        }
        double share = (System.nanoTime() - begin) / (double) workers;
        tally.finish(right);
        return String.format(
                Locale.ROOT, "ns %.3f alone %.3f", took / (double) events, share / events);
    }

    /** The number of finished tasks, and the sum of their results. */
    public static final class Tally {
        private final Task task;
        private final Work work = new Work();
        private long count;
        private long sum;

        public Tally(Task task) {
            this.task = task;
        }

        /** Does the task of an event. */
        public void add(long number) {
            count++;
            if (task.empty) {
                sum += number;
            } else {
                boolean large = task.skewed && number % 100 == 0;
                sum += work.stepsFrom(number, large ? task.steps * 100 : task.steps);
            }
        }

        private void addAll(long first, long last) {
            for (long number = first; number <= last; number++) {
                add(number);
            }
        }

        /** Adds another worker's tally. */
        public Tally and(Tally other) {
            Tally both = new Tally(task);
            both.count = count + other.count;
            both.sum = sum + other.sum;
            return both;
        }

        /** Fails unless both tallies are equal. */
        public void finish(Tally right) {
            if (count != right.count || sum != right.sum) {
                throw new IllegalStateException("tasks lost, doubled or damaged");
            }
        }
    }
}
