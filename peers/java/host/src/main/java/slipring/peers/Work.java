package slipring.peers;

/** Artificial work of producers and consumers: the same multiplications as in every language. */
public final class Work {
    /** Number of events in a part of a loop: a method that is called often is compiled. */
    private static final int PART = 512;

    /** The end of some work, so that the compiler leaves no steps out. */
    private static volatile long kept;

    private long state;

    public Work() {
        this(1);
    }

    /** Begins with a state. */
    public Work(long state) {
        this.state = state;
    }

    public long state() {
        return state;
    }

    /** Does {@code count} dependent multiplications, as the contenders written in Rust do. */
    public void steps(int count) {
        long value = state;
        for (int i = 0; i < count; i++) {
            value = (value ^ (value >>> 32)) * 6_364_136_223_846_793_005L;
        }
        state = value;
    }

    /** Keeps the compiler from leaving out the steps so far. */
    public void keep() {
        kept = state;
    }

    /** Does the steps from a start value, and returns the end value. */
    public long stepsFrom(long start, int count) {
        state = start;
        steps(count);
        return state();
    }

    /** Measures steps without a hand-over, in nanoseconds per event. */
    public static double alone(long events, int steps) {
        Work work = new Work();
        long begin = System.nanoTime();
        for (long next = 0; next < events; next += PART) {
            alonePart(Math.min(events - next, PART), steps, work);
        }
        work.keep();
        return (System.nanoTime() - begin) / (double) events;
    }

    private static void alonePart(long events, int steps, Work work) {
        for (long event = 0; event < events; event++) {
            work.steps(steps);
        }
    }
}
