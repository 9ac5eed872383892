package slipring.peers;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/** Artificial work of producers and consumers: the same multiplications as in every language. */
public final class Work {
    private static final VarHandle STATE;

    static {
        try {
            STATE = MethodHandles.lookup().findVarHandle(Work.class, "state", long.class);
        } catch (ReflectiveOperationException error) {
            throw new ExceptionInInitializerError(error);
        }
    }

    /** Number of events in a part of a loop: a method that is called often is compiled. */
    private static final int PART = 512;

    private long state;

    public Work() {
        this(1);
    }

    /** Begins with a state. */
    public Work(long state) {
        this.state = state;
    }

    public long state() {
        return (long) STATE.getOpaque(this);
    }

    /**
     * Does {@code count} dependent multiplications. Opaque accesses keep the compiler from merging
     * two of them into one, as the black box does in the contenders written in Rust.
     */
    public void steps(int count) {
        for (int i = 0; i < count; i++) {
            long old = (long) STATE.getOpaque(this);
            STATE.setOpaque(this, old * 6_364_136_223_846_793_005L + 1_442_695_040_888_963_407L);
        }
    }

    /** Does the steps from a start value, and returns the end value. */
    public long stepsFrom(long start, int count) {
        STATE.setOpaque(this, start);
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
        return (System.nanoTime() - begin) / (double) events;
    }

    private static void alonePart(long events, int steps, Work work) {
        for (long event = 0; event < events; event++) {
            work.steps(steps);
        }
    }
}
