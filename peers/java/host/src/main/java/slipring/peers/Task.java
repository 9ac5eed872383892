package slipring.peers;

/** The tasks of a pool: no work, or steps of work. */
public final class Task {
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

    /** Does all tasks on one thread. */
    public Tally alone(long events) {
        Tally tally = new Tally(this);
        for (long number = 1; number <= events; number++) {
            tally.add(number);
        }
        return tally;
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
