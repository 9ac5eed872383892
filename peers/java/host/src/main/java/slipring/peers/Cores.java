package slipring.peers;

import com.sun.jna.Native;
import com.sun.jna.Platform;

/** Binds the calling thread to cores. Does nothing on systems other than Linux. */
public final class Cores {
    /** Size of an affinity mask, in bytes; it names 1,024 cores. */
    private static final int MASK_BYTES = 128;

    private static final boolean AVAILABLE = Platform.isLinux();

    static {
        if (AVAILABLE) {
            Native.register(Cores.class, "c");
        }
    }

    private Cores() {}

    private static native int sched_setaffinity(int thread, long bytes, byte[] mask);

    /** Binds the calling thread to these cores. Where that is not allowed, nothing changes. */
    public static void pin(int... cores) {
        if (AVAILABLE) {
            byte[] mask = new byte[MASK_BYTES];
            for (int core : cores) {
                mask[core / 8] |= (byte) (1 << core % 8);
            }
            // Thread 0 is the calling thread.
            sched_setaffinity(0, MASK_BYTES, mask);
        }
    }
}
