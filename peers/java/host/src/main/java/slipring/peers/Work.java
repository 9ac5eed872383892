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

    private long state = 1;

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
        return (long) STATE.getOpaque(this);
    }
}
